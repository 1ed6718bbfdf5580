package app

import "github.com/spf13/cobra"

// subcommands are the operator's tools, in the order of the help text.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newJoinCommand(), newUnjoinCommand(), newAbsentCommand(), newKubeconfigCommand(), newRestoreCommand(), newBreakerCommand(), newOrphansCommand(),
		newAdoptCommand(), newReleaseCommand(), newExplainCommand(),
	}
}
