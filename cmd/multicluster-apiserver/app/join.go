package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-dev/isthmus/pkg/federation/join"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

// endpointFlags say how a subcommand reaches the endpoint.
type endpointFlags struct {
	kubeconfig, context, dataDir string
}

func (f *endpointFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the endpoint (default: $KUBECONFIG, then DATA_DIR/"+AdminKubeconfig+")")
	fs.StringVar(&f.context, "context", "", "context of --kubeconfig to use")
	fs.StringVar(&f.dataDir, "data-dir", DefaultDataDir, "data directory of the endpoint, where its "+AdminKubeconfig+" lies")
}

// config loads the kubeconfig of the endpoint.
func (f *endpointFlags) config() (*rest.Config, error) {
	path := f.kubeconfig
	if path == "" && os.Getenv("KUBECONFIG") == "" {
		path = filepath.Join(f.dataDir, AdminKubeconfig)
	}
	config, err := loadKubeconfig(path, f.context)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the endpoint (give --kubeconfig, $KUBECONFIG or --data-dir): %w", err)
	}
	return config, nil
}

// loadKubeconfig reads one context of a kubeconfig, files embedded. An empty
// path means $KUBECONFIG.
func loadKubeconfig(path, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			return nil, errors.New("it names no cluster")
		}
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	return config, nil
}

type joinOptions struct {
	endpoint                        endpointFlags
	memberKubeconfig, memberContext string
	region, zone, provider          string
	labels                          map[string]string
	wait, tokenLifetime             time.Duration
	customGroups, memberKinds       []string
	clusterRBAC, fixedRights        bool
}

func newJoinCommand() *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{
		Use:   "join NAME --member-kubeconfig FILE",
		Short: "Register a cluster as a member",
		Long: `Register a cluster as a member under NAME.

It creates two identities with limited rights in the cluster (one that reads
and routes, one that applies what is propagated), stores their tokens in the
control plane, creates the Cluster and waits until it is Ready. Nothing else in
the cluster changes; what runs there stays as it is.

The member's kubeconfig needs the rights of an administrator. They are used
once and are not kept. The command can be interrupted and repeated.`,
		Example: `  # Join the cluster of a kubeconfig
  multicluster-apiserver join m1 --member-kubeconfig ~/m1.kubeconfig

  # Choose the context, and say where the cluster is
  multicluster-apiserver join eu-1 --member-kubeconfig ~/.kube/config --member-context eu \
    --region eu-central --zone eu-central-1a --labels tier=prod`,
		Args:         oneName,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	fs := cmd.Flags()
	o.endpoint.add(fs)
	fs.StringVar(&o.memberKubeconfig, "member-kubeconfig", "", "kubeconfig of an administrator of the cluster that joins")
	fs.StringVar(&o.memberContext, "member-context", "", "context of --member-kubeconfig to use")
	fs.StringVar(&o.region, "region", "", "region of the cluster")
	fs.StringVar(&o.zone, "zone", "", "zone of the cluster")
	fs.StringVar(&o.provider, "provider", "", "provider of the cluster")
	fs.StringToStringVar(&o.labels, "labels", nil, "labels of the Cluster, as key=value,...")
	fs.DurationVar(&o.wait, "wait", 60*time.Second, "how long to wait until the cluster is Ready; 0 does not wait")
	fs.DurationVar(&o.tokenLifetime, "token-lifetime", membership.DefaultTokenLifetime, "lifetime of the tokens in the member; they are renewed at 80 % of it")
	fs.StringSliceVar(&o.customGroups, "custom-groups", nil, "API groups whose custom resources may be propagated, beside those that the control plane knows")
	fs.StringSliceVar(&o.memberKinds, "member-kinds", nil, "custom kinds that are read and written in the member, as RESOURCE.GROUP,...")
	fs.BoolVar(&o.clusterRBAC, "cluster-rbac", false, "allow propagating ClusterRoleBindings and any ClusterRole: this lets the apply identity become administrator of the member")
	fs.BoolVar(&o.fixedRights, "fixed-rights", false, "do not let the apply identity add groups of new CustomResourceDefinitions to its rights")
	return cmd
}

func (o *joinOptions) run(cmd *cobra.Command, name string) error {
	if err := join.ValidateName(name); err != nil {
		return err
	}
	if o.memberKubeconfig == "" {
		return errors.New("--member-kubeconfig is needed: the kubeconfig of an administrator of the cluster that joins")
	}
	if o.tokenLifetime < membership.MinTokenLifetime {
		return fmt.Errorf("--token-lifetime %s is too short: at least %s", o.tokenLifetime, membership.MinTokenLifetime)
	}
	if err := validLabels(o.labels); err != nil {
		return err
	}
	kinds, err := parseMemberKinds(o.memberKinds)
	if err != nil {
		return err
	}
	member, err := loadKubeconfig(o.memberKubeconfig, o.memberContext)
	if err != nil {
		return fmt.Errorf("--member-kubeconfig %s: %w", o.memberKubeconfig, err)
	}
	endpoint, err := o.endpoint.config()
	if err != nil {
		return err
	}
	return join.Join(cmd.Context(), join.Request{
		Name: name, ControlPlane: endpoint, Member: member, MemberSource: o.memberKubeconfig,
		Region: o.region, Zone: o.zone, Provider: o.provider, Labels: o.labels,
		Rights: join.Rights{
			CustomGroups: o.customGroups, MemberKinds: kinds,
			ClusterRBAC: o.clusterRBAC, Fixed: o.fixedRights,
		},
		TokenLifetime: o.tokenLifetime, Wait: o.wait, Out: cmd.OutOrStdout(),
	})
}

func validLabels(labels map[string]string) error {
	for k, v := range labels {
		if errs := validation.IsQualifiedName(k); len(errs) > 0 {
			return fmt.Errorf("--labels: key %q: %s", k, strings.Join(errs, "; "))
		}
		if errs := validation.IsValidLabelValue(v); len(errs) > 0 {
			return fmt.Errorf("--labels: value %q: %s", v, strings.Join(errs, "; "))
		}
	}
	return nil
}

// parseMemberKinds reads RESOURCE.GROUP names.
func parseMemberKinds(names []string) ([]join.GroupResource, error) {
	kinds := make([]join.GroupResource, 0, len(names))
	for _, name := range names {
		resource, group, ok := strings.Cut(name, ".")
		if !ok || resource == "" || !strings.Contains(group, ".") {
			return nil, fmt.Errorf("--member-kinds: %q is not of the form RESOURCE.GROUP, as in widgets.example.com", name)
		}
		kinds = append(kinds, join.GroupResource{Group: group, Resource: resource})
	}
	return kinds, nil
}
