"""Three labs, each a program to read in five minutes and to run in two seconds. README.md says what one sees."""
