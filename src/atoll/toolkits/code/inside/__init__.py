"""The server of the code interpreter. It runs in the sandbox, and needs nothing of atoll there."""
