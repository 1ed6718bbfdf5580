package app

import (
	"fmt"

	"github.com/spf13/cobra"
)

// subcommands are the operator's tools, in the order of the help text.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newJoinCommand(), newUnjoinCommand(), newAbsentCommand(), newKubeconfigCommand(), newRestoreCommand(), newBreakerCommand(), newOrphansCommand(),
		newAdoptCommand(), newReleaseCommand(), newExplainCommand(), newVersionCommand(),
	}
}

// oneName wants the name of a Cluster.
func oneName(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("the NAME of the Cluster is missing: %s", cmd.UseLine())
	case len(args) > 1:
		return fmt.Errorf("one NAME of a Cluster is wanted, not %d: %s", len(args), cmd.UseLine())
	}
	return nil
}
