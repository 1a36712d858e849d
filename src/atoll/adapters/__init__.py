"""atoll for other libraries: one file per library. Each needs its library, which the extra of its name brings."""
