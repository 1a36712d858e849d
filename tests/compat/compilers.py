"""Compilers and build systems: each builds something and runs it."""

from tests.compat.program import Family, Program

_C = """cat >sum.c <<'END'
#include <stdio.h>
int main(void) { long sum = 0; for (long n = 0; n < 1000000; n++) sum += n; printf("%ld\\n", sum); return 0; }
END
"""

FAMILY = Family(
    "compilers",
    (
        Program(
            "gcc",
            _C + 'gcc -O2 -Wall -Werror -o sum sum.c; test "$(./sum)" = 499999500000',
            debian="gcc libc6-dev",
            host="gcc",
        ),
        Program(
            "g++",
            """cat >sort.cc <<'END'
#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>
int main() {
    std::vector<int> v;
    for (int n = 0; n < 100000; n++) v.push_back(n * 7919 % 100003);
    std::thread sorter([&] { std::sort(v.begin(), v.end()); });
    sorter.join();
    std::puts(std::is_sorted(v.begin(), v.end()) ? "sorted" : "not");
}
END
g++ -O1 -pthread -o sort sort.cc; test "$(./sort)" = sorted""",
            debian="g++",
            host="g++",
        ),
        Program(
            "clang",
            _C + 'clang -O2 -o sum sum.c; test "$(./sum)" = 499999500000',
            debian="clang libc6-dev",
        ),
        Program(
            "cmake-ninja",
            _C
            + """cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.20)
project(compat C)
add_executable(sum sum.c)
enable_testing()
add_test(NAME sums COMMAND sum)
END
rm -rf built; cmake -G Ninja -B built . >log; cmake --build built >log
ctest --test-dir built | grep -q '100% tests'""",
            debian="cmake ninja-build gcc libc6-dev",
            host="cmake ninja gcc",
        ),
        Program(
            "make",
            """printf 'all: a b c\\n%%: ; @seq 10000 | sha256sum >$@\\n' >Makefile; rm -f a b c
make -sj4; cmp a c""",
            debian="make",
            host="make",
        ),
        Program(
            "go",
            """cat >main.go <<'END'
package main

import "fmt"

func main() {
	numbers, done := make(chan int), make(chan int)
	for w := 0; w < 8; w++ {
		go func() { sum := 0; for n := range numbers { sum += n }; done <- sum }()
	}
	for n := 0; n < 100000; n++ { numbers <- n }
	close(numbers)
	sum := 0
	for w := 0; w < 8; w++ { sum += <-done }
	fmt.Println(sum)
}
END
GOFLAGS=-mod=mod GO111MODULE=off go build -o sum main.go; test "$(./sum)" = 4999950000""",
            debian="golang-go",
            host="go",
        ),
        Program(
            "go-test-of-its-library",
            "GO111MODULE=off go test -count=1 sort strconv bufio sync",
            debian="golang-go gcc libc6-dev",
            host="go gcc",
        ),
        Program(
            "rust",
            """cat >main.rs <<'END'
use std::{sync::mpsc, thread};
fn main() {
    let (to, from) = mpsc::channel();
    for w in 0..4u64 { let to = to.clone(); thread::spawn(move || to.send((w..1000000).step_by(4).sum::<u64>())); }
    drop(to);
    println!("{}", from.iter().sum::<u64>());
}
END
rustc -O -o sum main.rs; test "$(./sum)" = 499999500000""",
            debian="rustc",
            host="rustc",
        ),
    ),
)
