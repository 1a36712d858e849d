package cmd

import (
	"context"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
)

// Attach implements subcommands.Command for the "attach" command.
type Attach struct {
	util.InternalSubCommand
}

// Name implements subcommands.Command.Name.
func (*Attach) Name() string {
	return "attach"
}

// Synopsis implements subcommands.Command.Synopsis.
func (*Attach) Synopsis() string {
	return "start a gofer for a container whose files are detached"
}

// Usage implements subcommands.Command.Usage.
func (*Attach) Usage() string {
	return "attach <container id>\n"
}

// SetFlags implements subcommands.Command.SetFlags.
func (*Attach) SetFlags(*flag.FlagSet) {}

// Execute implements subcommands.Command.Execute.
func (a *Attach) Execute(_ context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if f.NArg() != 1 {
		f.Usage()
		return subcommands.ExitUsageError
	}
	conf := args[0].(*config.Config)
	id := container.FullID{SandboxID: f.Arg(0), ContainerID: f.Arg(0)}
	cont, err := container.Load(conf.RootDir, id, container.LoadOpts{Exact: true, SkipCheck: true})
	if err != nil {
		util.Fatalf("loading the container: %v", err)
	}
	if err := cont.AttachFiles(conf); err != nil {
		util.Fatalf("attaching files: %v", err)
	}
	return subcommands.ExitSuccess
}
