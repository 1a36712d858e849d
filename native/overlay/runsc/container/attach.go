package container

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/pinring"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
)

// AttachFiles starts a gofer for a sandbox whose files are detached, and connects the two. The old gofer has ended.
func (c *Container) AttachFiles(conf *config.Config) error {
	// What was kept is by which descriptor it was reached by the command that started it.
	c.Saver.RootDir = conf.RootDir
	if err := c.Saver.lock(BlockAcquire); err != nil {
		return err
	}
	defer c.Saver.UnlockOrDie()
	c.GoferMountConfs = nil
	files, filestores, device, mounts, err := c.createGoferProcess(conf, c.Sandbox.MountHints, false /* attached */, nil)
	if err != nil {
		return fmt.Errorf("creating the gofer: %w", err)
	}
	if err := c.connectGofer(append(files, filestores...), device, mounts); err != nil {
		_ = unix.Kill(c.GoferPid.Load(), unix.SIGKILL)
		return err
	}
	return c.saveLocked()
}

// connectGofer gives the sandbox connections to its new gofer. It takes ownership of all files.
func (c *Container) connectGofer(files []*os.File, device, mounts *os.File) error {
	defer func() {
		for _, file := range append(files, mounts, c.sentryExitSock, c.pinRingFile) {
			file.Close()
		}
		c.sentryExitSock, c.pinRingFile = nil, nil
	}()
	if device != nil {
		device.Close()
		return fmt.Errorf("a gofer of devices cannot be started again")
	}
	// The sandbox knows its mounts, but the gofer waits until they are read.
	if _, err := io.Copy(io.Discard, mounts); err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	if c.sentryExitSock != nil {
		if err := pinring.SendPidfd(c.sentryExitSock, c.Sandbox.Pid.Load()); err != nil {
			return fmt.Errorf("telling the gofer of its sandbox: %w", err)
		}
	}
	args := boot.AttachFilesArgs{FilePayload: urpc.FilePayload{Files: files}}
	return c.Sandbox.AttachFiles(&args)
}
