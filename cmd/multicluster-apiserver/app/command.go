// Package app boots multicluster-apiserver:
//
//	Options -> Complete (certificates, embedded etcd) -> kube-apiserver config
//	        -> router inside its handler chain -> server chain -> Run
package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/isthmus-dev/isthmus/pkg/registry/buildversion"
	"github.com/isthmus-dev/isthmus/pkg/registry/embeddedetcd"
	"github.com/isthmus-dev/isthmus/pkg/registry/fleet"
)

const longHelp = `One Kubernetes API endpoint over many clusters.

Without a subcommand it serves the endpoint: Deployments, Services, ConfigMaps
and other federated kinds live in its embedded control plane and are propagated
to the member clusters; Pods, Events and Nodes of all members are read merged
through it, and logs, exec and writes go to the member that owns the object.

No flag is required. Certificates, an administrator's kubeconfig
(DATA_DIR/admin.kubeconfig) and an embedded etcd are made at the first start.`

const examples = `  # Serve, keeping all state below ./isthmus
  multicluster-apiserver --data-dir ./isthmus

  # Register a member cluster, then look at everything that runs
  export KUBECONFIG=./isthmus/admin.kubeconfig
  multicluster-apiserver join m1 --member-kubeconfig ~/m1.kubeconfig
  kubectl get pods -A`

// NewCommand is the root command: the server itself, and its subcommands.
func NewCommand() *cobra.Command {
	o := NewOptions()
	registry := o.Kube.GenericServerRunOptions.ComponentGlobalsRegistry
	gate := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	cmd := &cobra.Command{
		Use:           "multicluster-apiserver",
		Short:         "One Kubernetes API endpoint over many clusters",
		Long:          longHelp,
		Example:       examples,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: false,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := registry.Set(); err != nil {
				return fmt.Errorf("feature gates: %w", err)
			}
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			if err := logsapi.ValidateAndApply(o.Kube.Logs, gate); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			gate.(featuregate.MutableFeatureGate).AddMetrics()
			return Run(genericapiserver.SetupSignalContext(), o)
		},
	}
	flags := o.Flags()
	cmd.Version = buildversion.String(cmd.Name())
	cmd.SetVersionTemplate("{{.Version}}\n")
	flags.FlagSet("global").Bool("version", false, "Print the version and quit.")
	globalflag.AddGlobalFlags(flags.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range flags.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	setHelp(cmd, flags)
	addSubcommands(cmd)
	return cmd
}

// addSubcommands gives each subcommand cobra's own help, since the root's help
// prints the server's flag groups.
func addSubcommands(root *cobra.Command) {
	plain := &cobra.Command{}
	for _, sub := range subcommands() {
		sub.SetHelpFunc(plain.HelpFunc())
		sub.SetUsageFunc(plain.UsageFunc())
		root.AddCommand(sub)
	}
}

func init() {
	// The feature gates of logging belong to the process, as in kube-apiserver.
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Run serves until ctx ends.
func Run(ctx context.Context, o *Options) error {
	if err := fleet.TunePings(); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	files, err := o.Complete()
	if err != nil {
		return err
	}
	var etcd *embeddedetcd.Server
	if len(o.Kube.Etcd.StorageConfig.Transport.ServerList) == 0 {
		if etcd, err = embeddedetcd.Open(ctx, o.DataDir+"/etcd", files); err != nil {
			return err
		}
		defer etcd.Stop()
		o.useEtcd(etcd.Endpoint(), files)
	}
	completed, err := o.Kube.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete the flags: %w", err)
	}
	if err := sentence(completed.Validate()); err != nil {
		return err
	}
	if err := checkPort(ctx, completed.SecureServing); err != nil {
		return err
	}
	if etcd != nil {
		if err := etcd.Start(ctx); err != nil {
			return err
		}
	}
	server, err := newServer(ctx, completed, o, files)
	if err != nil {
		return err
	}
	defer server.finish(10 * time.Second)
	return server.run(ctx)
}
