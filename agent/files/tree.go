package files

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"atoll/agent/fault"
)

// FaultRecord is the pax record of a global header that says why an archive was cut off there.
const FaultRecord = "ATOLL.fault"

type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	raw := info.Sys().(*syscall.Stat_t)
	return inode{raw.Dev, raw.Ino}
}

// packer writes a directory as a tar.
type packer struct {
	work  Work
	root  string
	out   *tar.Writer
	names map[inode]string // of files with several names
	// the name of the only entry, if there is to be just one
	single string
}

// CheckTree tells whether a path is a directory that the user may read.
func (w Work) CheckTree(path string) error {
	return Named(w.Account.Act(func() error {
		if err := isDirectory(path); err != nil {
			return err
		}
		directory, err := os.Open(path)
		if err != nil {
			return err
		}
		return directory.Close()
	}), path)
}

// Pack writes what is in a directory as a pax tar. Sockets, pipes and devices are left out.
func (w Work) Pack(path string, out io.Writer) error {
	return w.pack(path, out, func(p *packer) error { return p.directory("") })
}

// CheckFile tells whether a path leads to a file that the user may read.
func (w Work) CheckFile(path string) error {
	file, info, err := w.Open(path)
	if err != nil {
		return err
	}
	file.Close()
	if !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "%s is neither a file nor a directory", path)
	}
	return nil
}

// PackFile writes the file that a path leads to as a pax tar, under another name.
func (w Work) PackFile(path, name string, out io.Writer) error {
	return w.pack(path, out, func(p *packer) error {
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		p.root, p.single = filepath.Dir(path), name
		return p.entry(filepath.Base(path), info)
	})
}

func (w Work) pack(path string, out io.Writer, all func(*packer) error) error {
	// A tar is written by the block, and what the connection gathers of itself is small.
	gathered := bufio.NewWriterSize(out, copyBytes)
	p := &packer{work: w, root: path, out: tar.NewWriter(gathered), names: map[inode]string{}}
	err := Named(w.Account.Act(func() error { return all(p) }), path)
	if err != nil {
		p.tell(err)
	} else {
		err = p.out.Close()
	}
	if flushed := gathered.Flush(); err == nil {
		err = flushed
	}
	return Named(err, path)
}

// tell says in the archive itself why it ends here: its status has been sent. In the middle of a file that is not possible.
func (p *packer) tell(err error) {
	told := fault.Of(err)
	text, failed := json.Marshal(map[string]string{"code": string(told.Code), "message": told.Message})
	if failed != nil {
		return
	}
	records := map[string]string{FaultRecord: string(text)}
	// A client that left needs no answer.
	_ = p.out.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: records})
	_ = p.out.Flush() // to the block's end, which no entry comes to fill
}

func (p *packer) directory(below string) error {
	entries, err := os.ReadDir(filepath.Join(p.root, below))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil {
			err = p.entry(filepath.Join(below, entry.Name()), info)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // what is removed meanwhile is left out
			return err
		}
	}
	return nil
}

func (p *packer) entry(name string, info fs.FileInfo) error {
	kind := kindOf(info.Mode())
	if kind == KindOther {
		return nil
	}
	var file *os.File
	if kind == KindFile {
		var err error
		file, err = os.OpenFile(filepath.Join(p.root, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		if info, err = file.Stat(); err != nil {
			return err
		}
	}
	header, err := p.header(name, info)
	if err != nil {
		return err
	}
	if err := p.out.WriteHeader(header); err != nil {
		return err
	}
	switch {
	case header.Typeflag == tar.TypeReg:
		return p.content(file, header.Size)
	case kind == KindDirectory:
		return p.directory(name)
	}
	return nil
}

func (p *packer) header(name string, info fs.FileInfo) (*tar.Header, error) {
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = os.Readlink(filepath.Join(p.root, name)); err != nil {
			return nil, err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return nil, err
	}
	raw := info.Sys().(*syscall.Stat_t)
	header.Name, header.Format = name, tar.FormatPAX
	if p.single != "" {
		header.Name = p.single
	}
	header.Mode = int64(raw.Mode & modeBits)
	header.Uname, header.Gname = p.work.Users.OwnerName(raw.Uid), p.work.Users.GroupName(raw.Gid)
	if info.IsDir() {
		header.Name += "/"
	}
	if info.Mode().IsRegular() && raw.Nlink > 1 {
		key := inodeOf(info)
		if first, seen := p.names[key]; seen {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
		} else {
			p.names[key] = name
		}
	}
	return header, nil
}

// content copies exactly as many bytes as the header promised, even if the file changes meanwhile.
func (p *packer) content(file *os.File, size int64) error {
	copied, err := Copy(p.out, io.LimitReader(file, size))
	if err != nil || copied == size {
		return err
	}
	_, err = Copy(p.out, io.LimitReader(zeros{}, size-copied))
	return err
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}
