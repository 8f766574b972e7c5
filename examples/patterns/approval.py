"""Approval by people: who may decide, until when, who is asked next, and a signature that comes from elsewhere.

    python -m examples.patterns.approval

A decision is a signal: it may come at any time, also before it is asked for, and the first one counts. Whoever is
asked has a deadline; after it the next one is asked. The signature is an activity that hands out a token: the right to
sign this one purchase, once. It could be in a link of a mail. While people think nothing runs, and `pledger show` says
who they are.
"""

import asyncio
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta

from pledger import Client, Worker, activity, connect, workflow

#: Stands for everybody's mail: what each was sent.
mail: dict[str, list[str]] = defaultdict(list)


@dataclass
class Verdict:
    by: str
    approved: bool


@activity.defn
async def ask(person: str, purchase: str) -> None:
    mail[person].append(f"May we have {purchase}?")


@activity.defn(start_to_close_timeout=timedelta(days=30))
async def sign(person: str) -> str:
    """Its code ends at once, and it goes on until somebody comes with the token. Not before: then it is tried again."""
    token = activity.completion_token()
    mail[person].append(token)
    activity.raise_complete_async()  # whoever has the token says who has signed


@workflow.defn(owner="purchasing")
class Purchase:
    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self.asked = ""

    @workflow.run
    async def run(self, purchase: str, deciders: dict[str, timedelta]) -> str:
        """deciders: who is asked, one after another, and how long each may take."""
        for self.asked, patience in deciders.items():
            await ask(self.asked, purchase)
            try:
                await workflow.wait_condition(
                    lambda: self.verdict is not None, timeout=patience, name="a decision", owner=self.asked
                )
                break
            except TimeoutError:
                workflow.logger.info("%s has not decided", self.asked)
        match self.verdict:
            case None:
                return "nobody has decided"
            case Verdict(by, approved=False):
                return f"refused by {by}"
            case Verdict(by):
                return f"approved by {by}, signed by {await sign('notary')}"

    @workflow.signal
    def decide(self, verdict: Verdict) -> None:
        self.verdict = self.verdict or verdict

    @workflow.query
    def waits_for(self) -> str:
        return self.asked


WORKFLOWS = [Purchase]
ACTIVITIES = [ask, sign]


async def main(url: str) -> None:
    mail.clear()
    async with connect(url) as client, Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
        long, short = timedelta(days=2), timedelta(milliseconds=50)
        await buy(client, "a lamp", {"Mia": long, "Dora": long}, Verdict("Mia", approved=True))
        await buy(client, "a piano", {"Mia": short, "Dora": long}, Verdict("Dora", approved=True))
        await buy(client, "a yacht", {"Mia": long, "Dora": long}, Verdict("Mia", approved=False))
        await buy(client, "a hat", {"Mia": short, "Dora": short}, None)


async def buy(client: Client, purchase: str, deciders: dict[str, timedelta], verdict: Verdict | None) -> None:
    """Start it, and be the people: those who decide, and the notary."""
    handle = await client.start_workflow(Purchase, purchase, deciders, id=f"buy {purchase}")
    if verdict is not None:
        while await handle.query(Purchase.waits_for) != verdict.by:  # noqa: ASYNC110 - people look now and then
            await asyncio.sleep(0.01)
        await handle.signal(Purchase.decide, verdict)
        while verdict.approved and not mail["notary"]:  # noqa: ASYNC110 - the mail is another system
            await asyncio.sleep(0.01)
        for token in mail.pop("notary", []):
            await client.complete_activity(token, "Nora", activity=sign)
    print(f"{purchase}: {await handle.result()}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
