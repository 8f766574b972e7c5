def code_identity(t): return "dev"
