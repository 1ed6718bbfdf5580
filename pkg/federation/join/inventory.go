package join

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

const (
	managedLabel = "isthmus.dev/managed"
	listPage     = 500
	// shownNamespaces is how many namespaces a join lists.
	shownNamespaces = 20
)

// workloadKinds are what the inventory counts.
var workloadKinds = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
}

// systemNamespaces are not counted.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease", v1alpha1.MemberNamespace}

// inventory counts workloads that the federation does not manage, by namespace
// and resource.
type inventory map[string]map[string]int

func (m *memberClients) unmanaged(ctx context.Context) (inventory, error) {
	found := inventory{}
	for _, kind := range workloadKinds {
		opts := metav1.ListOptions{Limit: listPage, LabelSelector: managedLabel + "!=true"}
		for {
			page, err := m.metadata.Resource(kind).List(ctx, opts)
			if err != nil {
				return nil, fmt.Errorf("%s of the member: %w", kind.Resource, err)
			}
			for i := range page.Items {
				found.count(&page.Items[i].ObjectMeta, kind.Resource)
			}
			if opts.Continue = page.Continue; opts.Continue == "" {
				break
			}
		}
	}
	return found, nil
}

// count adds one workload, unless another one made it.
func (inv inventory) count(obj *metav1.ObjectMeta, resource string) {
	if slices.Contains(systemNamespaces, obj.Namespace) || metav1.GetControllerOfNoCopy(obj) != nil {
		return
	}
	if inv[obj.Namespace] == nil {
		inv[obj.Namespace] = map[string]int{}
	}
	inv[obj.Namespace][resource]++
}

// lines are the inventory as text.
func (inv inventory) lines() []string {
	var out []string
	names := slices.Sorted(maps.Keys(inv))
	for i, ns := range names {
		if i == shownNamespaces {
			return append(out, fmt.Sprintf("  ... and %d more namespaces", len(names)-i))
		}
		var parts []string
		for _, kind := range workloadKinds {
			switch n := inv[ns][kind.Resource]; n {
			case 0:
			case 1:
				parts = append(parts, "1 "+strings.TrimSuffix(kind.Resource, "s"))
			default:
				parts = append(parts, fmt.Sprintf("%d %s", n, kind.Resource))
			}
		}
		out = append(out, fmt.Sprintf("  %s: %s", ns, strings.Join(parts, ", ")))
	}
	return out
}

// printUnmanaged says what runs in the member without the federation's doing.
func (j *join) printUnmanaged(ctx context.Context) error {
	inv, err := j.member.unmanaged(ctx)
	if err != nil {
		return withRights(err)
	}
	if len(inv) == 0 {
		j.say("joined; it has no workloads of its own outside the system namespaces")
		return nil
	}
	j.say("joined; it runs workloads that are not managed, and they stay as they are:")
	text := append(inv.lines(),
		"To adopt one, with its Pods as they are, see first what would change:",
		fmt.Sprintf("  multicluster-apiserver adopt --cluster %s -n NAMESPACE [KIND/NAME] --dry-run", j.Name))
	if _, err := fmt.Fprintln(j.Out, strings.Join(text, "\n")); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}
