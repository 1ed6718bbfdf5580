package app

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"
)

// setHelp prints what the program is, its subcommands, and our own flags
// before the inherited ones.
func setHelp(root *cobra.Command, flags cliflag.NamedFlagSets) {
	help := func(cmd *cobra.Command, out io.Writer) {
		columns, _, _ := term.TerminalSize(out)
		_, _ = fmt.Fprintf(out, "%s\n\nUsage:\n  %s [flags]\n  %s COMMAND\n\nExamples:\n%s\n\nCommands:\n", cmd.Long, cmd.Name(), cmd.Name(), cmd.Example)
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				_, _ = fmt.Fprintf(out, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
		_, _ = fmt.Fprintf(out, "\n%q tells about one command. Our own flags come first; the others are kube-apiserver's.\n", cmd.Name()+" COMMAND --help")
		cliflag.PrintSections(out, flags, columns)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { help(cmd, cmd.OutOrStdout()) })
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStderr(), "run %q for the commands and flags\n", cmd.Name()+" --help")
		return err
	})
}
