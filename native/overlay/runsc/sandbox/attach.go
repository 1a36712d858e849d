package sandbox

import "gvisor.dev/gvisor/runsc/boot"

// AttachFiles connects the sandbox, whose files are detached, to a new gofer.
func (s *Sandbox) AttachFiles(args *boot.AttachFilesArgs) error {
	return s.call(boot.ContMgrAttachFiles, args, nil)
}
