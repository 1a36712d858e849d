module atoll/bench/spawn

go 1.26
