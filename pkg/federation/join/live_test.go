package join

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/client"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/crds"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

// membersEnv names the folder of a running lab (e2e/README.md) whose members
// m1, m2 and m3 these tests may use: m3 plays the control plane.
const membersEnv = "ISTHMUS_TEST_MEMBERS"

func liveConfig(t *testing.T, name string) *rest.Config {
	t.Helper()
	dir := os.Getenv(membersEnv)
	if dir == "" {
		t.Skipf("%s is not set: no real members to test with", membersEnv)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, name, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func installCRD(t *testing.T, config *rest.Config) {
	t.Helper()
	data, err := crds.Files.ReadFile("cluster.karmada.io_clusters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	api := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	if old, err := api.Get(t.Context(), crd.Name, metav1.GetOptions{}); err == nil {
		crd.ResourceVersion = old.ResourceVersion
		if _, err := api.Update(t.Context(), &crd, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	} else if _, err := api.Create(t.Context(), &crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clusters, err := client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "Clusters are served", func() bool {
		_, err := clusters.List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}

func eventually(t *testing.T, limit time.Duration, what string, fn func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !fn() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// fleet is a control plane with a running membership.
type fleet struct {
	config   *rest.Config
	clusters client.Clusters
	kube     kubernetes.Interface
	dir      *membership.Controller
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{config: liveConfig(t, "m3")}
	installCRD(t, f.config)
	var err error
	if f.clusters, err = client.NewForConfig(f.config); err != nil {
		t.Fatal(err)
	}
	f.kube = kubernetes.NewForConfigOrDie(f.config)
	for _, name := range []string{"m1", "m2", "m2b", "bad"} {
		if err := f.clusters.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	f.dir, err = membership.New(membership.Options{
		ControlPlane: f.config,
		Timing:       membership.Timing{Probe: 500 * time.Millisecond, ProbeTimeout: 2 * time.Second, Discovery: 2 * time.Second, Summary: 2 * time.Second},
		Thresholds:   membership.Thresholds{Failure: 2 * time.Second, Success: 2 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.dir.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := f.dir.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fleet) join(t *testing.T, name, member string, change func(*Request)) (string, error) {
	t.Helper()
	var out bytes.Buffer
	req := Request{
		Name: name, ControlPlane: f.config, Member: liveConfig(t, member), MemberSource: member,
		Wait: 20 * time.Second, Out: &out,
	}
	if change != nil {
		change(&req)
	}
	err := Join(t.Context(), req)
	t.Log(out.String())
	return out.String(), err
}

func (f *fleet) unjoin(t *testing.T, name string, change func(*UnjoinRequest)) (string, error) {
	t.Helper()
	var out bytes.Buffer
	req := UnjoinRequest{Name: name, ControlPlane: f.config, Timeout: 15 * time.Second, Out: &out}
	if change != nil {
		change(&req)
	}
	err := Unjoin(t.Context(), req)
	t.Log(out.String())
	return out.String(), err
}

func (f *fleet) condition(t *testing.T, name, condition string) metav1.Condition {
	t.Helper()
	c, err := f.clusters.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cond := meta.FindStatusCondition(c.Status.Conditions, condition); cond != nil {
		return *cond
	}
	return metav1.Condition{}
}

func TestLiveJoinUseUnjoin(t *testing.T) {
	f := newFleet(t)
	out, err := f.join(t, "m1", "m1", func(r *Request) { r.Region = "eu"; r.Labels = map[string]string{"tier": "prod"} })
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "Ready") {
		t.Errorf("no progress line says Ready: %s", out)
	}
	if _, err := f.join(t, "m1", "m1", nil); err != nil {
		t.Fatalf("a second join: %v", err)
	}
	var m membership.Member
	eventually(t, 10*time.Second, "m1 is Ready in the Directory with nodes and APIs", func() bool {
		m, _ = f.dir.Get("m1")
		return m.Ready && m.Reachable && m.Nodes != nil && len(m.APIEnablements) > 10 && m.Version != ""
	})
	if m.Region != "eu" || m.Labels["tier"] != "prod" || m.UID == "" || m.Read == m.Apply {
		t.Errorf("member = %+v", m)
	}
	t.Run("rights", func(t *testing.T) { checkRights(t, m) })
	t.Run("new custom resources", func(t *testing.T) { checkCustomGroups(t, f, m) })
	t.Run("same cluster, two names", func(t *testing.T) {
		if _, err := f.join(t, "m2b", "m1", nil); !errors.Is(err, ErrAlreadyJoined) {
			t.Errorf("err = %v, want ErrAlreadyJoined", err)
		}
	})
	t.Run("another cluster under the name", func(t *testing.T) {
		if _, err := f.join(t, "m1", "m2", nil); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("err = %v, want ErrOtherCluster", err)
		}
	})
	t.Run("itself", func(t *testing.T) {
		if _, err := f.join(t, "bad", "m3", nil); !errors.Is(err, ErrSelf) {
			t.Errorf("err = %v, want ErrSelf", err)
		}
	})
	t.Run("credentials", func(t *testing.T) { checkCredentials(t, f) })
	t.Run("identity", func(t *testing.T) { checkIdentityChange(t, f) })
	t.Run("unjoin", func(t *testing.T) { checkUnjoin(t, f) })
}

// checkRights asks the member what each identity may do.
func checkRights(t *testing.T, m membership.Member) {
	read, apply := kubernetes.NewForConfigOrDie(m.Read), kubernetes.NewForConfigOrDie(m.Apply)
	type attr = authorizationv1.ResourceAttributes
	for _, tc := range []struct {
		who  kubernetes.Interface
		as   string
		a    attr
		want bool
	}{
		{read, "read", attr{Verb: "list", Resource: "pods"}, true},
		{read, "read", attr{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "default"}, true},
		{read, "read", attr{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "default"}, true},
		{read, "read", attr{Verb: "get", Resource: "namespaces", Name: "kube-system"}, true},
		{read, "read", attr{Verb: "get", Resource: "secrets", Namespace: "default"}, false},
		{read, "read", attr{Verb: "list", Resource: "configmaps", Namespace: "default"}, false},
		{read, "read", attr{Verb: "list", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}, false},
		{read, "read", attr{Verb: "impersonate", Resource: "users"}, false},
		{read, "read", attr{Verb: "get", Resource: "nodes", Subresource: "proxy"}, false},
		{read, "read", attr{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "default"}, false},
		{read, "read", attr{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "isthmus-system", Name: "isthmus-read"}, true},
		{read, "read", attr{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "isthmus-system", Name: "isthmus-apply"}, false},
		{apply, "apply", attr{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "default"}, true},
		{apply, "apply", attr{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: "default"}, true},
		{apply, "apply", attr{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "isthmus-apply"}, false},
		{apply, "apply", attr{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}, false},
		{apply, "apply", attr{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "default"}, false},
		{apply, "apply", attr{Verb: "create", Resource: "pods", Namespace: "default"}, false},
		{apply, "apply", attr{Verb: "update", Resource: "nodes"}, false},
		{apply, "apply", attr{Verb: "impersonate", Resource: "serviceaccounts"}, false},
		{apply, "apply", attr{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "kube-system", Name: "default"}, false},
		{apply, "apply", attr{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "isthmus-system", Name: "isthmus-apply"}, true},
	} {
		review, err := tc.who.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &tc.a},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != tc.want {
			t.Errorf("%s: %s %s/%s %s allowed = %v, want %v", tc.as, tc.a.Verb, tc.a.Resource, tc.a.Subresource, tc.a.Name, review.Status.Allowed, tc.want)
		}
	}
}

// checkCredentials breaks and mends the token in the Secret under a running
// client.
func checkCredentials(t *testing.T, f *fleet) {
	m, _ := f.dir.Get("m1")
	running := kubernetes.NewForConfigOrDie(m.Read)
	secrets := f.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace)
	secret, err := secrets.Get(t.Context(), "m1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	good := secret.Data["token"]
	put := func(token []byte) {
		current, err := secrets.Get(t.Context(), "m1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		current.Data["token"] = token
		if _, err := secrets.Update(t.Context(), current, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put([]byte("nonsense"))
	eventually(t, 10*time.Second, "Ready is False for Unauthorized", func() bool {
		c := f.condition(t, "m1", "Ready")
		return c.Status == metav1.ConditionFalse && c.Reason == "Unauthorized"
	})
	if c := f.condition(t, "m1", "CredentialsValid"); c.Status != metav1.ConditionFalse || c.Reason != "Unauthorized" {
		t.Errorf("CredentialsValid = %+v", c)
	}
	put(good)
	eventually(t, 5*time.Second, "Ready again", func() bool {
		return f.condition(t, "m1", "Ready").Status == metav1.ConditionTrue
	})
	if now, _ := f.dir.Get("m1"); now.Read != m.Read {
		t.Error("a token made a new config")
	}
	if _, err := running.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Errorf("the running client after the rotation: %v", err)
	}
}

// checkIdentityChange points m1 to m2's API and back.
func checkIdentityChange(t *testing.T, f *fleet) {
	m, _ := f.dir.Get("m1")
	other := liveConfig(t, "m2")
	move := func(host string, insecure bool) {
		patch := `{"spec":{"apiEndpoint":"` + host + `","insecureSkipTLSVerification":` + map[bool]string{true: "true", false: "false"}[insecure] + `}}`
		if _, err := f.clusters.Patch(t.Context(), "m1", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Credentials that m2 takes: its own administrator's.
	secrets := f.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace)
	before := map[string]map[string][]byte{}
	swap := func(name string, data map[string][]byte) {
		current, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before[name] = current.Data
		current.Data = data
		if _, err := secrets.Update(t.Context(), current, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	admin := map[string][]byte{"tls.crt": other.CertData, "tls.key": other.KeyData, "token": []byte(other.BearerToken)}
	swap("m1", admin)
	swap("m1-apply", admin)
	was := before
	before = map[string]map[string][]byte{}
	move(other.Host, true)
	eventually(t, 10*time.Second, "IdentityChanged", func() bool {
		return f.condition(t, "m1", "Ready").Reason == v1alpha1.ReasonIdentityChanged
	})
	changed, _ := f.dir.Get("m1")
	if changed.Read == nil || changed.Read == m.Read {
		t.Fatal("the address changed without a new config")
	}
	for what, config := range map[string]*rest.Config{"read": changed.Read, "apply": changed.Apply} {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "must-not-be"}}, metav1.CreateOptions{})
		if !errors.Is(err, membership.ErrIdentityChanged) {
			t.Errorf("%s: a write to the other cluster: %v", what, err)
		}
	}
	swap("m1", was["m1"])
	swap("m1-apply", was["m1-apply"])
	move(liveConfig(t, "m1").Host, false)
	eventually(t, 10*time.Second, "Ready at the old address", func() bool {
		return f.condition(t, "m1", "Ready").Status == metav1.ConditionTrue
	})
	back, _ := f.dir.Get("m1")
	if _, err := kubernetes.NewForConfigOrDie(back.Apply).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Errorf("apply identity after the return: %v", err)
	}
}

func checkUnjoin(t *testing.T, f *fleet) {
	m, _ := f.dir.Get("m1")
	if _, err := f.unjoin(t, "m1", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "m1 is out of the Directory", func() bool {
		_, ok := f.dir.Get("m1")
		return !ok
	})
	if _, err := kubernetes.NewForConfigOrDie(m.Read).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !errors.Is(err, membership.ErrLeft) {
		t.Errorf("a request after the unjoin: %v", err)
	}
	admin := kubernetes.NewForConfigOrDie(liveConfig(t, "m1"))
	eventually(t, 30*time.Second, "nothing of ours is in the member", func() bool {
		roles, err := admin.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.IdentityLabel})
		if err != nil {
			t.Fatal(err)
		}
		bindings, err := admin.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.IdentityLabel})
		if err != nil {
			t.Fatal(err)
		}
		_, err = admin.CoreV1().Namespaces().Get(t.Context(), v1alpha1.MemberNamespace, metav1.GetOptions{})
		return len(roles.Items)+len(bindings.Items) == 0 && apierrors.IsNotFound(err)
	})
	for _, name := range []string{"m1", "m1-apply"} {
		if _, err := f.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Secret %s: %v", name, err)
		}
	}
	if _, err := f.unjoin(t, "m1", nil); !errors.Is(err, ErrNotJoined) {
		t.Errorf("a second unjoin: %v", err)
	}
	out, err := f.unjoin(t, "m1", func(r *UnjoinRequest) { r.IgnoreNotFound = true })
	if err != nil || !strings.Contains(out, "nothing to do") {
		t.Errorf("a second unjoin that ignores it: %q, %v", out, err)
	}
}

// checkCustomGroups creates a CustomResourceDefinition in the control plane:
// the apply identity may write its objects in the member soon after.
func checkCustomGroups(t *testing.T, f *fleet, m membership.Member) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.grow.example.com"}}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "grow.example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		}},
	}
	apply := kubernetes.NewForConfigOrDie(m.Apply)
	may := func() bool {
		review, err := apply.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "patch", Group: "grow.example.com", Resource: "widgets", Namespace: "default",
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	if may() {
		t.Error("the right is there before the kind")
	}
	crds := apiextensions.NewForConfigOrDie(f.config).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := crds.Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, 10*time.Second, "the apply identity may write widgets", may)
}
