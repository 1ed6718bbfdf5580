package join

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

func TestValidateName(t *testing.T) {
	for name, ok := range map[string]bool{
		"m1": true, "a": true, "eu-central-1": true, strings.Repeat("a", 48): true,
		"": false, "a.b": false, "A": false, "-a": false, "a-": false, "a_b": false,
		strings.Repeat("a", 49): false, "m1-apply": false, "-apply": false, "m1\n": false, "ä": false,
	} {
		if err := ValidateName(name); (err == nil) != ok || (err != nil && !errors.Is(err, ErrInvalidName)) {
			t.Errorf("%q: %v, want ok %v", name, err, ok)
		}
	}
}

func TestMayJoin(t *testing.T) {
	cluster := func(name, id string) v1alpha1.Cluster {
		return v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{ID: id}}
	}
	have := []v1alpha1.Cluster{cluster("m1", "1"), cluster("m2", "2"), cluster("new", "")}
	for _, tc := range []struct {
		name string
		uid  string
		err  error
	}{
		{"m3", "3", nil},
		{"m1", "1", nil},
		{"new", "4", nil},
		{"m1b", "1", ErrAlreadyJoined},
		{"m1", "3", ErrOtherCluster},
		{"new", "2", ErrAlreadyJoined},
	} {
		if err := mayJoin(tc.name, types.UID(tc.uid), have); !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
			t.Errorf("%s as %s: %v, want %v", tc.uid, tc.name, err, tc.err)
		}
	}
}

// allows reports whether rules grant a verb, as RBAC reads them.
func allows(rules []rbacv1.PolicyRule, verb, group, resource string) bool {
	has := func(list []string, v string) bool { return slices.Contains(list, v) || slices.Contains(list, "*") }
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return len(r.ResourceNames) == 0 && has(r.Verbs, verb) && has(r.APIGroups, group) && has(r.Resources, resource)
	})
}

func TestLeastPrivilege(t *testing.T) {
	read := ReadRules([]GroupResource{{Group: "example.com", Resource: "widgets"}})
	apply := slices.Concat(ApplyRules(false), membership.CustomRules([]string{"example.com"}), membershipRules(false))
	admin := ApplyRules(true)
	const rbac = "rbac.authorization.k8s.io"
	for _, tc := range []struct {
		as                    string
		rules                 []rbacv1.PolicyRule
		verb, group, resource string
		want                  bool
	}{
		{"read", read, "list", "", "pods", true},
		{"read", read, "watch", "example.com", "widgets", true},
		{"read", read, "create", "", "pods/exec", true},
		{"read", read, "get", "", "secrets", false},
		{"read", read, "list", "", "configmaps", false},
		{"read", read, "get", rbac, "roles", false},
		{"read", read, "impersonate", "", "users", false},
		{"read", read, "get", "", "nodes/proxy", false},
		{"read", read, "create", "", "serviceaccounts/token", false},
		{"read", read, "update", "apps", "deployments", false},
		{"read", read, "get", "other.example.com", "widgets", false},
		{"apply", apply, "patch", "apps", "deployments", true},
		{"apply", apply, "create", "example.com", "widgets", true},
		{"apply", apply, "escalate", rbac, "roles", true},
		{"apply", apply, "escalate", rbac, "clusterroles", false},
		{"apply", apply, "create", rbac, "clusterrolebindings", false},
		{"apply", apply, "create", "", "pods", false},
		{"apply", apply, "create", "", "pods/exec", false},
		{"apply", apply, "create", "", "serviceaccounts/token", false},
		{"apply", apply, "impersonate", "", "users", false},
		{"apply", apply, "update", "", "nodes", false},
		{"apply with --cluster-rbac", admin, "escalate", rbac, "clusterroles", true},
		{"apply with --cluster-rbac", admin, "create", rbac, "clusterrolebindings", true},
	} {
		if got := allows(tc.rules, tc.verb, tc.group, tc.resource); got != tc.want {
			t.Errorf("%s: %s %s/%s = %v, want %v", tc.as, tc.verb, tc.group, tc.resource, got, tc.want)
		}
	}
}

func TestFixedRightsCannotGrow(t *testing.T) {
	escalates := func(fixed bool) bool {
		return slices.ContainsFunc(membershipRules(fixed), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "escalate") })
	}
	if escalates(true) || !escalates(false) {
		t.Errorf("escalate: fixed %v, not fixed %v", escalates(true), escalates(false))
	}
}

func TestEveryObjectIsMarkedAsOurs(t *testing.T) {
	for _, obj := range MemberObjects(Rights{}) {
		m, ok := obj.(metav1.Object)
		if !ok || m.GetLabels()[v1alpha1.IdentityLabel] == "" {
			t.Errorf("%T has no label %s", obj, v1alpha1.IdentityLabel)
		}
		if _, ok := resources[obj.GetObjectKind().GroupVersionKind().Kind]; !ok {
			t.Errorf("%T cannot be written", obj)
		}
	}
}

func TestMarkedAs(t *testing.T) {
	deployments := kind{gvr: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, kind: "Deployment", namespaced: true}
	configMaps := kind{gvr: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, kind: "ConfigMap", namespaced: true}
	roles := kind{gvr: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, kind: "ClusterRole"}
	for _, tc := range []struct {
		mark     string
		label    string
		ns, name string
		k        kind
		want     bool
	}{
		{"apps/v1/Deployment/default/web", "true", "default", "web", deployments, true},
		{"core/v1/ConfigMap/default/web", "true", "default", "web", configMaps, true},
		{"rbac.authorization.k8s.io/v1/ClusterRole//web", "true", "", "web", roles, true},
		{"apps/v1/Deployment/default/web", "", "default", "web", deployments, false},
		{"apps/v1/Deployment/default/web", "true", "default", "clone", deployments, false},
		{"apps/v1/Deployment/default/web", "true", "other", "web", deployments, false},
		{"apps/v1/StatefulSet/default/web", "true", "default", "web", deployments, false},
		{"core/v1/Deployment/default/web", "true", "default", "web", deployments, false},
		{"", "true", "default", "web", deployments, false},
	} {
		obj := &metav1.ObjectMeta{
			Namespace: tc.ns, Name: tc.name,
			Labels: map[string]string{managedLabel: tc.label}, Annotations: map[string]string{templateAnnotation: tc.mark},
		}
		if got := markedAs(obj, tc.k); got != tc.want {
			t.Errorf("%s on %s %s/%s: %v, want %v", tc.mark, tc.k.kind, tc.ns, tc.name, got, tc.want)
		}
	}
}

func TestUnmarkPatchIsBoundToTheObject(t *testing.T) {
	patch, err := unmarkPatch("u-1")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Metadata struct {
			UID    string
			Labels map[string]*string
		}
	}
	if err := json.Unmarshal(patch, &got); err != nil {
		t.Fatal(err)
	}
	if v, ok := got.Metadata.Labels[managedLabel]; got.Metadata.UID != "u-1" || !ok || v != nil {
		t.Errorf("patch %s", patch)
	}
}

func TestInventory(t *testing.T) {
	yes := true
	inv := inventory{}
	for _, one := range []struct {
		ns, resource string
		owned        bool
	}{
		{"team-a", "deployments", false},
		{"team-a", "deployments", false},
		{"team-a", "jobs", true},
		{"team-b", "statefulsets", false},
		{"kube-system", "daemonsets", false},
		{"isthmus-system", "deployments", false},
	} {
		obj := &metav1.ObjectMeta{Namespace: one.ns}
		if one.owned {
			obj.OwnerReferences = []metav1.OwnerReference{{Controller: &yes}}
		}
		inv.count(obj, one.resource)
	}
	want := []string{"  team-a: 2 deployments", "  team-b: 1 statefulset"}
	if got := inv.lines(); !slices.Equal(got, want) {
		t.Errorf("lines = %q, want %q", got, want)
	}
}

func TestStateOf(t *testing.T) {
	with := func(conds ...metav1.Condition) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Conditions: conds}}
	}
	for _, tc := range []struct {
		c     *v1alpha1.Cluster
		ready bool
		says  string
	}{
		{with(), false, "first look"},
		{with(metav1.Condition{Type: "Ready", Status: "False", Reason: "ClusterNotReachable", Message: "no route"}), false, "no route"},
		{with(metav1.Condition{Type: "Ready", Status: "True"}), true, "Ready"},
		{with(metav1.Condition{Type: "CredentialsValid", Status: "True"}), false, ""},
		{with(metav1.Condition{Type: "Ready", Status: "True"}, metav1.Condition{Type: "CredentialsValid", Status: "False", Reason: "Unauthorized"}), true, "Unauthorized"},
	} {
		if state, ready := stateOf(tc.c); ready != tc.ready || !strings.Contains(state, tc.says) {
			t.Errorf("%v: %q %v, want %q %v", tc.c.Status.Conditions, state, ready, tc.says, tc.ready)
		}
	}
}

func TestProxyOf(t *testing.T) {
	proxy, err := url.Parse("socks5://p:1080")
	if err != nil {
		t.Fatal(err)
	}
	for want, config := range map[string]*rest.Config{
		"":                {Host: "https://x"},
		"socks5://p:1080": {Host: "https://x", Proxy: http.ProxyURL(proxy)},
	} {
		if got, err := ProxyOf(config); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

func TestFederatedGroups(t *testing.T) {
	got := membership.FederatedGroups([]string{
		"widgets.example.com", "gadgets.example.com", "clusters.cluster.karmada.io", "evil.rbac.authorization.k8s.io",
		"evil.apps", "gateways.gateway.networking.k8s.io", "pods.metrics.k8s.io", "nogroup",
	})
	if want := []string{"example.com", "gateway.networking.k8s.io"}; !slices.Equal(got, want) {
		t.Errorf("groups = %v, want %v", got, want)
	}
}
