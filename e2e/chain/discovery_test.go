package chain

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	// discoveryLimit is what a client may wait while members are down.
	discoveryLimit = 2 * time.Second
)

// documents are what discovery, OpenAPI and version answer.
func documents(t *testing.T, config *rest.Config) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, path := range []string{"/api", "/apis", "/api/v1", "/apis/apps/v1", "/apis/events.k8s.io/v1", "/apis/metrics.k8s.io/v1beta1", "/openapi/v3", "/version"} {
		for _, accept := range []string{jsonType, aggregated} {
			if accept == aggregated && path != "/api" && path != "/apis" {
				continue
			}
			started := time.Now()
			a := ask(t, config, "GET", path, nil, "Accept", accept)
			if a.code != 200 || time.Since(started) > discoveryLimit {
				t.Errorf("%s as %s: %s after %s", path, accept, a, time.Since(started))
			}
			if bytes.Contains(a.body, []byte("Stale")) {
				t.Errorf("%s says that something is stale", path)
			}
			out[path+" "+accept] = a.body
		}
	}
	return out
}

// Discovery and OpenAPI are the control plane's: a member that hangs changes
// nothing in them and delays nobody.
func TestDiscoveryWithoutMember(t *testing.T) {
	config := labtest.Config(t, world.System)
	before := documents(t, config)
	if !strings.Contains(string(before["/apis "+aggregated]), "replicasets") {
		t.Fatal("aggregated discovery is not complete with all members there")
	}
	world.proxy.Blackhole()
	defer healed(t)
	time.Sleep(3 * time.Second)
	during := documents(t, config)
	for path, body := range before {
		if !bytes.Equal(body, during[path]) {
			t.Errorf("%s changes when a member is down: %d bytes, then %d", path, len(body), len(during[path]))
		}
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.ServerGroupsAndResources(); err != nil {
		t.Errorf("a client's discovery: %v", err)
	}
}

// healed ends an outage of m2 and waits until it is followed again.
func healed(t testing.TB) {
	t.Helper()
	if err := world.proxy.Heal(); err != nil {
		t.Error(err)
	}
	ns := namespace(t)
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error {
		_, err := endpoint(t).CoreV1().Pods(ns).Create(ctx, inCluster(pod(labtest.UniqueName(t, "healed")), "m2"), metav1.CreateOptions{})
		return err
	})
}

// There are no Work objects, and what is served beyond Kubernetes is what the
// documents say.
func TestServedGroups(t *testing.T) {
	t.Parallel()
	client := endpoint(t).Discovery()
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	// The plain document of a version as well as the aggregated one.
	plain, err := client.ServerResourcesForGroupVersion("cluster.karmada.io/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range plain.APIResources {
		served["plain "+r.Name] = true
	}
	for _, list := range lists {
		for _, r := range list.APIResources {
			served[list.GroupVersion+" "+r.Kind] = true
			served[list.GroupVersion+" "+r.Name] = true
		}
	}
	for _, want := range []string{
		"policy.karmada.io/v1alpha1 PropagationPolicy", "policy.karmada.io/v1alpha1 ClusterPropagationPolicy",
		"policy.karmada.io/v1alpha1 OverridePolicy", "policy.karmada.io/v1alpha1 ClusterOverridePolicy",
		"cluster.karmada.io/v1alpha1 Cluster", "cluster.karmada.io/v1alpha1 clusters/proxy", "cluster.karmada.io/v1alpha1 clusters/status",
		"plain clusters", "plain clusters/proxy", "plain clusters/status",
		"work.karmada.io/v1alpha2 ResourceBinding", "work.karmada.io/v1alpha2 ClusterResourceBinding",
		"apps/v1 ReplicaSet", "v1 Pod", "v1 Event", "events.k8s.io/v1 Event", "metrics.k8s.io/v1beta1 PodMetrics",
	} {
		if !served[want] {
			t.Errorf("%s is not served", want)
		}
	}
	for kind := range served {
		if strings.HasSuffix(kind, " Work") {
			t.Errorf("%s is served", kind)
		}
	}
}

// Reviews answer for routed kinds as for any.
func TestReviews(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	user := labtest.UniqueName(t, "reviewer")
	client, err := kubernetes.NewForConfig(limitedUser(t, user, "view"))
	if err != nil {
		t.Fatal(err)
	}
	can := func(verb, resource, subresource string) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Resource: resource, Subresource: subresource},
		}}
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		if ok, err := can("list", "pods", ""); !ok {
			return fmt.Errorf("may not list Pods: %w", err)
		}
		return nil
	})
	for _, q := range [][2]string{{"delete", ""}, {"create", "exec"}} {
		if ok, err := can(q[0], "pods", q[1]); ok || err != nil {
			t.Errorf("%s pods %s: %v %v", q[0], q[1], ok, err)
		}
	}
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != user {
		t.Errorf("who am I: %+v %v", who, err)
	}
	rules, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: ns}}, metav1.CreateOptions{})
	if err != nil || !slices.ContainsFunc(rules.Status.ResourceRules, func(r authorizationv1.ResourceRule) bool { return slices.Contains(r.Resources, "pods") }) {
		t.Errorf("my rules: %+v %v", rules, err)
	}
	subject, err := endpoint(t).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: "get", Resource: "pods", Subresource: "log"}},
	}, metav1.CreateOptions{})
	if err != nil || !subject.Status.Allowed {
		t.Errorf("a review of somebody else: %+v %v", subject, err)
	}
}

// A service account's token of the endpoint is good there and nowhere else, and
// a member's token is good in the member alone.
func TestServiceAccountTokens(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	member := world.Member("m1")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		for _, c := range []kubernetes.Interface{endpoint(t), labtest.Client(t, member)} {
			if _, err := c.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	for name, c := range map[string]struct{ issuer, other *rest.Config }{
		"the endpoint's": {labtest.Config(t, world.System), labtest.Config(t, member)},
		"a member's":     {labtest.Config(t, member), labtest.Config(t, world.System)},
	} {
		issuer, err := kubernetes.NewForConfig(c.issuer)
		if err != nil {
			t.Fatal(err)
		}
		request, err := issuer.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for where, try := range map[string]struct {
			config *rest.Config
			want   int
		}{"where it was issued": {c.issuer, 200}, "elsewhere": {c.other, 401}} {
			anonymous := rest.AnonymousClientConfig(try.config)
			anonymous.BearerToken = request.Status.Token
			a := ask(t, anonymous, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
				[]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`), contentType, jsonType)
			if a.code != try.want && (try.want != 200 || a.code != 201) {
				t.Errorf("%s token %s: %s", name, where, a)
			}
		}
		review, err := issuer.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: request.Status.Token}}, metav1.CreateOptions{})
		if err != nil || !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:"+ns+":default" {
			t.Errorf("review of %s token: %+v %v", name, review, err)
		}
	}
}

// The break-glass file leads straight to a member, without the endpoint.
func TestBreakGlassFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "m1.kubeconfig")
	if _, err := world.System.Command(t.Context(), "kubeconfig", "--cluster", "m1", "--kubeconfig", world.System.Kubeconfig(), "-o", file); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", info, err)
	}
	data, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(data, []byte(world.Member("m1").Address())) || bytes.Contains(data, []byte(world.System.Address())) {
		t.Errorf("the file does not lead to the member: %v\n%s", err, data)
	}
	out := labtest.MustKubectl(t, file, "", "get", "nodes", "-o", "name")
	if direct := labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "get", "nodes", "-o", "name"); out != direct {
		t.Errorf("nodes %q, directly %q", out, direct)
	}
	ns := namespace(t)
	running(t, ns, inCluster(pod("web"), "m1"))
	labtest.MustKubectl(t, file, "", "-n", ns, "delete", "pod", "web", "--now")
	labtest.MustKubectl(t, file, "", "--context", "m1-apply", "-n", ns, "create", "configmap", "by-hand")
	if res := labtest.Kubectl(t, file, "", "-n", ns, "create", "configmap", "other"); res.Code == 0 {
		t.Error("the reading identity may write a ConfigMap")
	}
}
