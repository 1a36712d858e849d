// Package user knows the guest's accounts and acts with their rights.
package user

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/regular"
)

// Account is one user of the guest.
type Account struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32
	Home   string
	Shell  string
}

// Database reads /etc/passwd and /etc/group below Root again whenever they change.
// It is safe for concurrent use.
type Database struct {
	Root string

	mu       sync.Mutex
	stamps   [2]stamp
	accounts []*Account
	groups   map[uint32]string
}

type stamp struct {
	inode   uint64
	size    int64
	seconds int64
	nanos   int64
}

// Lookup finds an account by its name or its numeric id, which need not be in any file. A group, of either kind, may
// follow after a colon: then that is the account's only one.
func (d *Database) Lookup(name string) (*Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	name, group, hasGroup := strings.Cut(name, ":")
	account, err := d.account(name)
	if err != nil || !hasGroup {
		return account, err
	}
	gid, err := d.group(group)
	if err != nil {
		return nil, err
	}
	other := *account
	other.GID, other.Groups = gid, []uint32{gid}
	return &other, nil
}

func (d *Database) group(name string) (uint32, error) {
	for gid, known := range d.groups {
		if known == name {
			return gid, nil
		}
	}
	id, err := parseID(name)
	if err != nil {
		return 0, fault.New(fault.UserUnknown, "there is no group %q", name)
	}
	return uint32(id), nil
}

func (d *Database) account(name string) (*Account, error) {
	for _, account := range d.accounts {
		if account.Name == name {
			return account, nil
		}
	}
	if id, err := parseID(name); err == nil {
		for _, account := range d.accounts {
			if uint64(account.UID) == id {
				return account, nil
			}
		}
		return &Account{Name: name, UID: uint32(id), Groups: []uint32{0}, Home: "/", Shell: "/bin/sh"}, nil
	}
	return nil, fault.New(fault.UserUnknown, "there is no user %q", name)
}

// parseID reads a user or group id. The last number is none: to the kernel it means to stay who one is, which is root.
func parseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err == nil && id == math.MaxUint32 {
		err = strconv.ErrRange
	}
	return id, err
}

// OwnerName is the name of a user id, or its digits.
func (d *Database) OwnerName(id uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	for _, account := range d.accounts {
		if account.UID == id {
			return account.Name
		}
	}
	return strconv.FormatUint(uint64(id), 10)
}

// GroupName is the name of a group id, or its digits.
func (d *Database) GroupName(id uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	if name, ok := d.groups[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (d *Database) refresh() {
	passwd, group := filepath.Join(d.Root, "/etc/passwd"), filepath.Join(d.Root, "/etc/group")
	now := [2]stamp{stampOf(passwd), stampOf(group)}
	if now == d.stamps && d.groups != nil {
		return
	}
	d.stamps = now
	d.accounts = readAccounts(passwd)
	if !slices.ContainsFunc(d.accounts, func(a *Account) bool { return a.UID == 0 }) {
		d.accounts = append(d.accounts, &Account{Name: "root", Home: "/root", Shell: "/bin/sh"})
	}
	d.groups = readGroups(group, d.accounts)
}

func stampOf(path string) stamp {
	var info syscall.Stat_t
	if err := syscall.Stat(path, &info); err != nil {
		return stamp{}
	}
	return stamp{inode: info.Ino, size: info.Size, seconds: info.Mtim.Sec, nanos: info.Mtim.Nsec}
}

func readAccounts(path string) []*Account {
	var accounts []*Account
	for fields := range colonLines(path, 7) {
		uid, err := parseID(fields[2])
		if err != nil {
			continue
		}
		gid, err := parseID(fields[3])
		if err != nil {
			continue
		}
		account := &Account{
			Name: fields[0], UID: uint32(uid), GID: uint32(gid),
			Groups: []uint32{uint32(gid)}, Home: fields[5], Shell: fields[6],
		}
		if account.Home == "" {
			account.Home = "/"
		}
		if account.Shell == "" {
			account.Shell = "/bin/sh"
		}
		accounts = append(accounts, account)
	}
	return accounts
}

func readGroups(path string, accounts []*Account) map[uint32]string {
	names := map[uint32]string{0: "root"}
	for fields := range colonLines(path, 4) {
		id, err := parseID(fields[2])
		if err != nil {
			continue
		}
		gid := uint32(id)
		names[gid] = fields[0]
		members := strings.Split(fields[3], ",")
		for _, account := range accounts {
			if slices.Contains(members, account.Name) && !slices.Contains(account.Groups, gid) {
				account.Groups = append(account.Groups, gid)
			}
		}
	}
	return names
}

// colonLines yields the lines of a file that have at least that many colon-separated fields.
func colonLines(path string, least int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		file, err := regular.Open(path, os.O_RDONLY, 0)
		if err != nil {
			return
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			fields := strings.Split(lines.Text(), ":")
			if len(fields) >= least && fields[0] != "" && fields[0][0] != '#' && !yield(fields) {
				return
			}
		}
	}
}
