module atoll/bench/load

go 1.26
