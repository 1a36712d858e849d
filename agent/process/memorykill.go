package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mostAncestors bounds how far up the owner of a program is looked for.
const mostAncestors = 100

// MemoryKill is a program that was killed because the memory of the guest was nearly used, or with a limit of 0 because
// the host ran short of memory.
type MemoryKill struct {
	PID        int    `json:"pid"`
	Name       string `json:"name"`
	HeldBytes  int64  `json:"held_bytes"`
	UsedBytes  int64  `json:"used_bytes"`
	LimitBytes int64  `json:"limit_bytes"`
}

func (k *MemoryKill) String() string {
	const mib = 1 << 20
	if k.LimitBytes == 0 {
		return fmt.Sprintf("program %d (%s) was killed because the host ran short of memory: it held %d MiB",
			k.PID, k.Name, k.HeldBytes/mib)
	}
	return fmt.Sprintf("program %d (%s) was killed at the memory limit of %d MiB: it held %d MiB",
		k.PID, k.Name, k.LimitBytes/mib, k.HeldBytes/mib)
}

// NoteMemoryKill notes at the starter of a program that the program is killed for its memory, for the starter's end to say
// so. Call it before the kill: the two may be the same program. The returned function takes the note back.
func (t *Table) NoteMemoryKill(root string, kill MemoryKill) (forget func()) {
	p := t.owner(root, kill.PID)
	if p == nil {
		return func() {}
	}
	p.memoryKill.Store(&kill)
	return func() { p.memoryKill.CompareAndSwap(&kill, nil) }
}

// owner is the process of this table that a program belongs to: by its session, else by its ancestors.
func (t *Table) owner(root string, pid int) *Process {
	for range mostAncestors {
		if p := t.alive(pid); p != nil {
			return p
		}
		parent, session := kin(root, pid)
		if p := t.alive(session); p != nil {
			return p
		}
		if parent <= 1 {
			return nil
		}
		pid = parent
	}
	return nil
}

func (t *Table) alive(pid int) *Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live[pid]
}

// kin reads a process's parent and session; 0 where they cannot be read.
func kin(root string, pid int) (parent, session int) {
	text, err := os.ReadFile(filepath.Join(root, "/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0
	}
	// The name may hold anything, spaces and brackets too.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 4 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	session, _ = strconv.Atoi(fields[3])
	return parent, session
}
