package app

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/isthmus-dev/isthmus/pkg/federation/explain"
	"github.com/isthmus-dev/isthmus/pkg/registry/install"
)

func newExplainCommand() *cobra.Command {
	var endpoint endpointFlags
	q := explain.Question{StateNamespace: install.Namespace}
	var output string
	var only []string
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME [-n NAMESPACE]",
		Short: "What was decided about a template, and why",
		Long: `Say what was decided about a template and why: the policy that speaks for it and
the others that match, the clusters it goes to and why the others are left out,
what is overridden in each, where a copy differs from what its cluster is told,
and what waits or is on hold.

With -o yaml it prints what each cluster is told. Bounds of autoscalers and
PodDisruptionBudgets, which the placement of other objects divides, are shown as
the template has them.

It reads as you: members are asked through the endpoint, with your rights.`,
		Example: `  multicluster-apiserver explain deployment/web -n shop
  multicluster-apiserver explain deploy/web -n shop -o yaml --cluster m2
  multicluster-apiserver explain foos.example.com/x -n shop`,
		Args:         cobra.RangeArgs(1, 2),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "yaml" {
				return fmt.Errorf("-o %s: only yaml is known", output)
			}
			config, err := endpoint.config()
			if err != nil {
				return err
			}
			q.Endpoint, q.Name = config, args
			facts, err := explain.Gather(cmd.Context(), q)
			if err != nil {
				return err
			}
			report := explain.Judge(facts)
			if len(only) > 0 {
				report.Clusters = slices.DeleteFunc(report.Clusters, func(c explain.Cluster) bool { return !slices.Contains(only, c.Name) })
			}
			if output == "yaml" {
				return report.YAML(cmd.OutOrStdout())
			}
			return report.Print(cmd.OutOrStdout())
		},
	}
	endpoint.add(cmd.Flags())
	fs := cmd.Flags()
	fs.StringVarP(&q.Namespace, "namespace", "n", "", "namespace of the template (default: default)")
	fs.StringVarP(&output, "output", "o", "", "yaml prints what each cluster is told")
	fs.StringSliceVar(&only, "cluster", nil, "speak of these clusters only")
	return cmd
}
