module atoll/agent

go 1.26
