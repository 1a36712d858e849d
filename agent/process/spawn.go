package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/frames"
	"atoll/agent/pty"
	"atoll/agent/user"
)

// ends are the two sides of a process's input and output.
type ends struct {
	input   *os.File
	outputs map[byte]*os.File
	child   []*os.File
	null    *os.File // the one of child that is everybody's
}

// nothing is opened once: an open costs as much as all the rest of the pipes.
var nothing = sync.OnceValues(func() (*os.File, error) { return os.OpenFile("/dev/null", os.O_RDONLY, 0) })

func (e *ends) closeChild() {
	for _, file := range e.child {
		if file != e.null {
			file.Close()
		}
	}
}

func (e *ends) closeAll() {
	e.closeChild()
	if e.input != nil {
		e.input.Close()
	}
	for _, file := range e.outputs {
		file.Close()
	}
}

// files are the child's descriptors 0, 1 and 2.
func (e *ends) files() []uintptr {
	if len(e.child) == 1 {
		fd := e.child[0].Fd()
		return []uintptr{fd, fd, fd}
	}
	return []uintptr{e.child[0].Fd(), e.child[1].Fd(), e.child[2].Fd()}
}

func openEnds(spec *Spec) (*ends, error) {
	e := &ends{outputs: map[byte]*os.File{}}
	if spec.Terminal != nil {
		master, slave, err := pty.Open(*spec.Terminal, spec.Account.UID)
		if err != nil {
			return nil, err
		}
		e.input, e.child = master, []*os.File{slave}
		e.outputs[frames.Terminal] = master
		return e, nil
	}
	err := e.openPipes(spec.Stdin)
	if err != nil {
		e.closeAll()
		return nil, err
	}
	return e, nil
}

func (e *ends) openPipes(stdin bool) error {
	if stdin {
		read, write, err := pipe(false)
		if err != nil {
			return err
		}
		e.input, e.child = write, append(e.child, read)
	} else {
		null, err := nothing()
		if err != nil {
			return err
		}
		e.null, e.child = null, append(e.child, null)
	}
	for _, kind := range []byte{frames.Stdout, frames.Stderr} {
		read, write, err := pipe(true)
		if err != nil {
			return err
		}
		e.outputs[kind] = read
		e.child = append(e.child, write)
	}
	return nil
}

// pipe makes a pipe of which only the agent's end, the reading or the writing one, does not block.
func pipe(reads bool) (read, write *os.File, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	own := fds[1]
	if reads {
		own = fds[0]
	}
	if err := syscall.SetNonblock(own, true); err != nil {
		syscall.Close(fds[0])
		syscall.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

func spawn(spec *Spec, e *ends) (int, error) {
	credential, err := spec.Account.Credential()
	if err != nil {
		return 0, err
	}
	program, err := find(spec)
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(program, spec.Argv, &syscall.ProcAttr{
		Dir: spec.Cwd, Env: spec.Env, Files: e.files(),
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: spec.Terminal != nil, Credential: credential},
	})
	if err != nil {
		return 0, explain(spec, program, err)
	}
	return pid, nil
}

// find looks for the program as the user's execvp would.
func find(spec *Spec) (string, error) {
	name := spec.Argv[0]
	if name == "" {
		return "", fault.New(fault.ProgramMissing, "the program's name is empty")
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	denied := false
	for _, directory := range filepath.SplitList(spec.variable("PATH")) {
		path := filepath.Join(directory, name)
		if !filepath.IsAbs(path) {
			path = filepath.Join(spec.Cwd, path)
		}
		var info syscall.Stat_t
		if syscall.Stat(path, &info) != nil || info.Mode&syscall.S_IFMT != syscall.S_IFREG {
			continue
		}
		if executable(spec.Account, &info) {
			return path, nil
		}
		denied = true
	}
	if denied {
		return "", fault.New(fault.Denied, "%s may not be executed by %s", name, spec.Account.Name)
	}
	return "", fault.New(fault.ProgramMissing, "program %q is not in PATH", name)
}

func executable(account *user.Account, info *syscall.Stat_t) bool {
	switch {
	case account.UID == 0:
		return info.Mode&0o111 != 0
	case info.Uid == account.UID:
		return info.Mode&0o100 != 0
	case slices.Contains(account.Groups, info.Gid):
		return info.Mode&0o010 != 0
	}
	return info.Mode&0o001 != 0
}

// explain says which of the two paths an exec failed for: both give the same error number.
func explain(spec *Spec, program string, failed error) error {
	cwd := CheckDirectory(spec.Account, spec.Cwd)
	switch {
	case cwd != nil:
		return cwd
	case errors.Is(failed, syscall.ENOENT), errors.Is(failed, syscall.ENOTDIR):
		return fault.New(fault.ProgramMissing, "program %q, or the interpreter that it names, is missing", program)
	case errors.Is(failed, syscall.EACCES), errors.Is(failed, syscall.EPERM):
		return fault.New(fault.Denied, "%s may not execute %q", spec.Account.Name, program)
	case errors.Is(failed, syscall.ENAMETOOLONG):
		return fault.New(fault.Invalid, "execute %q: its name, an argument or a variable is too long", program)
	case errors.Is(failed, syscall.ENOEXEC), errors.Is(failed, syscall.E2BIG), errors.Is(failed, syscall.EINVAL):
		return fault.New(fault.Invalid, "execute %q: %v", program, failed)
	}
	return fault.New(fault.Internal, "start %q: %v", program, failed)
}

// CheckDirectory tells whether the user can enter a directory.
func CheckDirectory(account *user.Account, path string) error {
	return account.Act(func() error {
		var info syscall.Stat_t
		err := syscall.Stat(path, &info)
		switch {
		case errors.Is(err, syscall.EACCES):
			return fault.New(fault.Denied, "%s may not enter %q", account.Name, path)
		case err != nil:
			return fault.New(fault.CwdMissing, "cwd %q does not exist", path)
		case info.Mode&syscall.S_IFMT != syscall.S_IFDIR:
			return fault.New(fault.CwdMissing, "cwd %q is not a directory", path)
		}
		if executable(account, &info) {
			return nil
		}
		return fault.New(fault.Denied, "%s may not enter %q", account.Name, path)
	})
}
