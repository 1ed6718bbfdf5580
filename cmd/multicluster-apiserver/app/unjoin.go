package app

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-dev/isthmus/pkg/federation/join"
)

type unjoinOptions struct {
	endpoint                        endpointFlags
	memberKubeconfig, memberContext string
	force, deleteWorkloads          bool
	ignoreNotFound                  bool
	timeout                         time.Duration
}

func newUnjoinCommand() *cobra.Command {
	o := &unjoinOptions{}
	cmd := &cobra.Command{
		Use:   "unjoin NAME",
		Short: "Take a member out of the fleet",
		Long: `Take the member NAME out of the fleet.

The Cluster is deleted, managed copies in the member lose our marks and go on
running as they are, and our identities in the member and their Secrets are
removed. Only what a join made or the federation marked is touched.

When the member does not answer, nothing is changed unless --force is given;
with it the member is dropped after --timeout, and what may be left in it is
printed. The command can be interrupted and repeated.`,
		Example: `  # Take a member out; what runs in it goes on
  multicluster-apiserver unjoin m1

  # The cluster is gone for good
  multicluster-apiserver unjoin m2 --force

  # Also delete the workloads that were propagated to it
  multicluster-apiserver unjoin m3 --delete-workloads`,
		Args:         oneName,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	fs := cmd.Flags()
	o.endpoint.add(fs)
	fs.StringVar(&o.memberKubeconfig, "member-kubeconfig", "", "kubeconfig of an administrator of the member (default: the apply identity cleans up)")
	fs.StringVar(&o.memberContext, "member-context", "", "context of --member-kubeconfig to use")
	fs.BoolVar(&o.force, "force", false, "go on when the member does not answer or cannot be cleaned")
	fs.BoolVar(&o.deleteWorkloads, "delete-workloads", false, "delete the managed copies in the member; namespaces, volumes, claims and CustomResourceDefinitions are kept")
	fs.BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "succeed when there is no such Cluster")
	fs.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to try to clean the member")
	return cmd
}

func (o *unjoinOptions) run(cmd *cobra.Command, name string) error {
	if o.timeout <= 0 {
		return errors.New("--timeout must be positive")
	}
	req := join.UnjoinRequest{
		Name: name, Force: o.force, Timeout: o.timeout, DeleteWorkloads: o.deleteWorkloads, IgnoreNotFound: o.ignoreNotFound,
		MemberSource: o.memberKubeconfig, Out: cmd.OutOrStdout(),
	}
	if o.memberKubeconfig != "" {
		member, err := loadKubeconfig(o.memberKubeconfig, o.memberContext)
		if err != nil {
			return fmt.Errorf("--member-kubeconfig %s: %w", o.memberKubeconfig, err)
		}
		req.Member = member
	}
	endpoint, err := o.endpoint.config()
	if err != nil {
		return err
	}
	req.ControlPlane = endpoint
	return join.Unjoin(cmd.Context(), req)
}
