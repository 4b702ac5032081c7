"""What docs/security.md claims of files, secrets, rights and roles, each on the running parts."""
