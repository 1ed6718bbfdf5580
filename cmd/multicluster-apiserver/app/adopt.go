package app

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-dev/isthmus/pkg/federation/adoption"
)

func newAdoptCommand() *cobra.Command {
	var endpoint endpointFlags
	req := adoption.Request{}
	cmd := &cobra.Command{
		Use:   "adopt --cluster NAME[,NAME...] -n NAMESPACE [KIND/NAME ...]",
		Short: "Take over what runs in members, in place",
		Long: `Take over objects that run in members: their UIDs stay, no Pod is replaced.

Each object becomes a template in the control plane, made of what the first
cluster holds, with a policy that keeps it in its present clusters with its
present replicas. Where the clusters differ, an override policy keeps the
difference. Objects that belong to others (Pods, ReplicaSets) follow by
themselves.

Without KIND/NAME everything of the namespace that can be taken over is: its
Deployments, StatefulSets, DaemonSets, Jobs, CronJobs, Services, Ingresses,
ConfigMaps, Secrets, ServiceAccounts, PersistentVolumeClaims and
HorizontalPodAutoscalers. A CustomResourceDefinition brings its objects along.

Every member is asked first, in a dry run, what would change. The output shows
it; an object whose Pods would be replaced is refused and left alone. With
--dry-run nothing else happens. What one object is refused for does not keep
the others.`,
		Example: `  # See what would happen
  multicluster-apiserver adopt --cluster m1,m2 -n shop --dry-run

  # Take over one workload and its configuration
  multicluster-apiserver adopt --cluster m1 -n shop deployment/web configmap/web`,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(req.Clusters) == 0 {
				return errors.New("--cluster is needed: the members that hold the objects")
			}
			if req.Namespace == "" && len(args) == 0 {
				return errors.New("--namespace or KIND/NAME is needed")
			}
			config, err := endpoint.config()
			if err != nil {
				return err
			}
			req.ControlPlane, req.Names, req.Out = config, args, cmd.OutOrStdout()
			return adoption.Adopt(cmd.Context(), req)
		},
	}
	endpoint.add(cmd.Flags())
	fs := cmd.Flags()
	fs.StringSliceVar(&req.Clusters, "cluster", nil, "members that hold the objects; the first one's become the templates")
	fs.StringVarP(&req.Namespace, "namespace", "n", "", "namespace of the objects")
	fs.BoolVar(&req.DryRun, "dry-run", false, "only show what would be done")
	fs.DurationVar(&req.Wait, "wait", time.Minute, "how long to wait for the engine in each phase")
	return cmd
}

func newReleaseCommand() *cobra.Command {
	var endpoint endpointFlags
	req := adoption.ReleaseRequest{}
	cmd := &cobra.Command{
		Use:   "release -n NAMESPACE [KIND/NAME ...]",
		Short: "Give back what adopt has taken over",
		Long: `Give objects back to their clusters: the templates and the policies that adopt
has made go, the objects in the members stay as they are, without our marks.

Without KIND/NAME everything that was adopted in the namespace is released.
Releasing a CustomResourceDefinition makes its objects vanish from the control
plane: release them first.`,
		Example: `  multicluster-apiserver release -n shop deployment/web
  multicluster-apiserver release -n shop`,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Namespace == "" && len(args) == 0 {
				return errors.New("--namespace or KIND/NAME is needed")
			}
			config, err := endpoint.config()
			if err != nil {
				return err
			}
			req.ControlPlane, req.Names, req.Out = config, args, cmd.OutOrStdout()
			return adoption.Release(cmd.Context(), req)
		},
	}
	endpoint.add(cmd.Flags())
	fs := cmd.Flags()
	fs.StringVarP(&req.Namespace, "namespace", "n", "", "namespace of the templates")
	fs.BoolVar(&req.DryRun, "dry-run", false, "only show what would be done")
	fs.DurationVar(&req.Wait, "wait", time.Minute, "how long to wait for the engine in each phase")
	return cmd
}
