package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/isthmus-dev/isthmus/pkg/registry/buildversion"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:          "version",
		Short:        "Print the version",
		Long:         "Print the product's own version, and the Kubernetes version that it speaks.",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), buildversion.String(cmd.Root().Name()))
			return err
		},
	}
}
