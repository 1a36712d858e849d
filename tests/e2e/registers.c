// Threads that keep a pattern in each vector register over page faults and system calls: `registers SECONDS`.
// It says how many registers had another pattern afterwards, and how often it looked.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 64, PAGE = 4096, REGISTERS = 16, BYTES = 16 };

// For each register: its offset in the patterns, and its name.
#define EACH(DO)                                                                                             \
    DO(0, xmm0) DO(16, xmm1) DO(32, xmm2) DO(48, xmm3) DO(64, xmm4) DO(80, xmm5) DO(96, xmm6) DO(112, xmm7) \
    DO(128, xmm8) DO(144, xmm9) DO(160, xmm10) DO(176, xmm11) DO(192, xmm12) DO(208, xmm13) DO(224, xmm14)  \
    DO(240, xmm15)
#define LOAD(at, name) "movdqu " #at "(%[in]), %%" #name "\n"
#define STORE(at, name) "movdqu %%" #name ", " #at "(%[out])\n"
#define CLOBBERED                                                                                            \
    "memory", "rax", "rcx", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",   \
        "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static atomic_long faults, looks;
static _Atomic uint32_t word;

// Without a page it makes a system call; otherwise it writes to the page, which is not there yet.
static void look(uint8_t seed, volatile char *page) {
    uint8_t in[REGISTERS][BYTES], out[REGISTERS][BYTES];
    for (int i = 0; i < REGISTERS; i++) {
        memset(in[i], seed + 7 * i + 1, BYTES);
    }
    if (page != NULL) {
        asm volatile(EACH(LOAD) "movb $1, (%[page])\n" EACH(STORE)
                     : : [in] "r"(in), [out] "r"(out), [page] "r"(page) : CLOBBERED);
    } else {
        long call = SYS_getppid;
        asm volatile(EACH(LOAD) "mov %[call], %%rax\nsyscall\n" EACH(STORE)
                     : : [in] "r"(in), [out] "r"(out), [call] "r"(call) : CLOBBERED);
    }
    faults += memcmp(in, out, sizeof in) != 0;
    looks++;
}

static void wait_ns(long nanoseconds) {
    struct timespec bound = {0, nanoseconds};
    syscall(SYS_futex, &word, FUTEX_WAIT, word, &bound, NULL, 0);
}

static _Noreturn void *work(void *argument) {
    long number = (long)argument;
    char *block = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned round = 0;; round++) {
        madvise(block, PAGES * PAGE, MADV_DONTNEED);
        for (int page = 0; page < PAGES; page++) {
            uint8_t seed = 16 * round + 50 * number + page;
            look(seed, block + page * PAGE);
            if (page % 8 == 0) {
                look(seed, NULL);
            }
        }
        if (number % 2) {
            wait_ns(200000);
        }
    }
}

static _Noreturn void *doze(void *argument) {
    for (;;) {
        wait_ns(100000 + 300000 * (long)argument);
    }
}

int main(int count, char **arguments) {
    pthread_t thread;
    for (long number = 0; number < 2; number++) {
        pthread_create(&thread, NULL, work, (void *)number);
    }
    for (long number = 0; number < 3; number++) {
        pthread_create(&thread, NULL, doze, (void *)number);
    }
    sleep(count > 1 ? atoi(arguments[1]) : 1);
    printf("%ld %ld\n", faults, looks);
    fflush(stdout);
    _exit(0);
}
