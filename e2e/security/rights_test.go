package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const ourNamespace = "isthmus-system"

// forbidden are what no role for users of a namespace may give.
var forbidden = []authorizationv1.ResourceAttributes{
	{Verb: "get", Resource: "secrets", Namespace: ourNamespace, Name: "m1"},
	{Verb: "list", Resource: "secrets", Namespace: ourNamespace},
	{Verb: "list", Resource: "secrets"},
	{Verb: "update", Resource: "configmaps", Namespace: ourNamespace},
	{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: ourNamespace},
	{Verb: "get", Group: "cluster.karmada.io", Resource: "clusters", Subresource: "proxy", Name: "m1"},
	{Verb: "create", Group: "cluster.karmada.io", Resource: "clusters", Subresource: "proxy", Name: "m1"},
	{Verb: "create", Group: "cluster.karmada.io", Resource: "clusters"},
	{Verb: "patch", Group: "cluster.karmada.io", Resource: "clusters", Name: "m1"},
	{Verb: "delete", Group: "cluster.karmada.io", Resource: "clusters", Name: "m1"},
	{Verb: "create", Group: "policy.karmada.io", Resource: "clusterpropagationpolicies"},
	{Verb: "update", Group: "policy.karmada.io", Resource: "clusterpropagationpolicies"},
	{Verb: "create", Group: "policy.karmada.io", Resource: "clusteroverridepolicies"},
	{Verb: "impersonate", Resource: "users"},
	{Verb: "impersonate", Resource: "groups"},
	{Verb: "patch", Resource: "nodes"},
	{Verb: "get", Resource: "nodes", Subresource: "proxy"},
	{Verb: "delete", Resource: "namespaces"},
	{Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"},
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles"},
	{Verb: "create", Group: rbacv1.GroupName, Resource: "clusterrolebindings"},
	{Verb: "create", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Verb: "create", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
	{Verb: "delete", Resource: "pods", Namespace: "kube-system"},
	{Verb: "*", Group: "*", Resource: "*"},
}

// The roles that a platform gives to its users say nothing about clusters,
// policies of all namespaces, credentials of members or other namespaces.
func TestRolesForUsers(t *testing.T) {
	admin := world.System.Kubeconfig()
	ns := labtest.Namespace(t, admin)
	cannot := map[string][]authorizationv1.ResourceAttributes{
		"view": {
			{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: ns},
			{Verb: "get", Resource: "pods", Subresource: "exec", Namespace: ns},
			{Verb: "get", Resource: "pods", Subresource: "proxy", Namespace: ns},
			{Verb: "get", Resource: "secrets", Namespace: ns},
			{Verb: "delete", Resource: "pods", Namespace: ns},
			{Verb: "create", Group: "policy.karmada.io", Resource: "propagationpolicies", Namespace: ns},
		},
		"edit":  {{Verb: "create", Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: ns}},
		"admin": {},
	}
	for role, more := range cannot {
		user := labtest.UniqueName(t, "user-of-"+role)
		labtest.MustKubectl(t, admin, "", "-n", ns, "create", "rolebinding", user, "--clusterrole="+role, "--user="+user)
		ask := func(a authorizationv1.ResourceAttributes) bool {
			review, err := endpoint(t).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &a},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return review.Status.Allowed
		}
		labtest.Eventually(t, cacheTime, func(context.Context) error {
			if !ask(authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: ns}) {
				return failed("the role does not act yet")
			}
			return nil
		})
		for _, a := range append(more, forbidden...) {
			if ask(a) {
				t.Errorf("%s in a namespace may %s %s/%s %s in %q", role, a.Verb, a.Resource, a.Subresource, a.Name, a.Namespace)
			}
		}
	}
}

// A member's credential is good in that member alone.
func TestCredentialsOfMembersAreGoodThereAlone(t *testing.T) {
	for _, name := range []string{"m1", "m1-apply", "m2", "m2-apply"} {
		token := credentialOf(t, name)
		other := map[string]string{"m1": "m2", "m2": "m1"}[name[:2]]
		for where, config := range map[string]*rest.Config{
			"the endpoint": labtest.Config(t, world.System), "the other member": labtest.Config(t, world.Member(other)),
		} {
			config = rest.AnonymousClientConfig(config)
			config.BearerToken = token
			if user, err := whoami(t.Context(), clientOf(t, config)); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
				t.Errorf("the token of %s makes %v at %s (%v)", name, user, where, err)
			}
		}
	}
}

const usersRole = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: isthmus-users, namespace: isthmus-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: isthmus-users}
rules:
- {apiGroups: [""], resources: [users, groups, serviceaccounts], verbs: [impersonate]}
- {apiGroups: [authentication.k8s.io], resources: ["*"], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: isthmus-users}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: isthmus-users}
subjects: [{kind: ServiceAccount, name: isthmus-users, namespace: isthmus-system}]
`

// Where a Cluster names an identity for users, the member sees who acts and has
// the last word; without that identity nobody acts for them.
func TestUsersInAMember(t *testing.T) {
	admin, m1 := world.System.Kubeconfig(), world.Member("m1")
	mine, other := labtest.Namespace(t, admin), labtest.Namespace(t, admin)
	for _, ns := range []string{mine, other} {
		labtest.MustKubectl(t, admin, strings.ReplaceAll(memberRole, "NS", ns), "-n", ns, "apply", "-f", "-")
		runIn(t, ns, "web", "m1")
		runIn(t, ns, "elsewhere", "m2")
	}
	// Role bindings of a namespace are propagated: what the member decides by
	// itself is said by a binding of its own, in one namespace alone.
	labtest.MustKubectl(t, m1.Kubeconfig(), usersRole, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		for _, ns := range []string{mine, other} {
			if res := labtest.Kubectl(t, m1.Kubeconfig(), "", "-n", ns, "get", "rolebinding", "editors"); res.Code != 0 {
				return errorOf(res)
			}
		}
		return nil
	})
	labtest.MustKubectl(t, admin, "", "-n", other, "annotate", "rolebinding", "editors", "isthmus.dev/hold=true")
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", other, "delete", "rolebinding", "editors")
	useIdentityForUsers(t)
	hooked := labtest.UniqueName(t, "opaque-token-of-wanda")
	world.reviewer.admit(hooked, authenticationv1.UserInfo{Username: "wanda", UID: "7", Groups: []string{"hooked"}})
	config := withToken(t, hooked)
	acts := verbs(clientOf(t, config), config)
	labtest.Eventually(t, cacheTime, func(ctx context.Context) error {
		if err := acts["patch"](ctx, mine, "web"); err != nil {
			return err
		}
		if err := acts["patch"](ctx, other, "web"); err == nil || !strings.Contains(err.Error(), `User "wanda"`) {
			return fmt.Errorf("in the other namespace: %w", err)
		}
		return nil
	})
	audit := labtest.MemberAudit(t, m1)
	for _, what := range []string{"log", "patch", "exec by WebSocket", "exec by SPDY", "eviction, tried"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := acts[what](ctx, mine, "web"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := acts[what](ctx, other, "web"); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("%s, which the member does not allow: %v", what, err)
		}
		if err := acts[what](ctx, other, "elsewhere"); err != nil {
			t.Errorf("%s in the other member: %v", what, err)
		}
		cancel()
	}
	for _, a := range audit.Read(t) {
		if a.ObjectRef.Resource == "pods" && a.ObjectRef.Name == "web" && a.User.Username == labtest.ReadUser && (a.Writes() || a.ObjectRef.Subresource != "") {
			t.Errorf("%s %s was done as the identity that reads", a.Verb, a.RequestURI)
		}
	}
	// Without the identity: refused, and said so.
	labtest.MustKubectl(t, admin, "", "-n", ourNamespace, "delete", "secret", "m1-users")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		a, err := send(ctx, t, config, http.MethodGet, "/api/v1/namespaces/"+mine+"/pods/web/log?tailLines=1", http.NoBody)
		if err != nil || a.code < 500 {
			return fmt.Errorf("%d %.200s: %w", a.code, a.body, err)
		}
		res := labtest.Kubectl(t, admin, "", "get", "cluster", "m1", "-o", `jsonpath={.status.conditions[?(@.type=="CredentialsValid")].message}`)
		if !strings.Contains(res.Out, "impersonatorSecretRef") {
			return errorOf(res)
		}
		return nil
	})
}

// useIdentityForUsers names the identity in the Cluster m1 until the test ends.
func useIdentityForUsers(t *testing.T) {
	t.Helper()
	admin := world.System.Kubeconfig()
	request, err := labtest.Client(t, world.Member("m1")).CoreV1().ServiceAccounts(ourNamespace).CreateToken(t.Context(), "isthmus-users", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secrets := endpoint(t).CoreV1().Secrets(ourNamespace)
	read, err := secrets.Get(t.Context(), "m1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "m1-users"},
		Data:       map[string][]byte{"token": []byte(request.Status.Token), "caBundle": read.Data["caBundle"]},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labtest.MustKubectl(t, admin, "", "patch", "cluster", "m1", "--type=merge", "-p",
		`{"spec":{"impersonatorSecretRef":{"namespace":"isthmus-system","name":"m1-users"}}}`)
	t.Cleanup(func() {
		if res := labtest.Kubectl(t, admin, "", "patch", "cluster", "m1", "--type=merge", "-p", `{"spec":{"impersonatorSecretRef":null}}`); res.Code != 0 {
			t.Error(errorOf(res))
		}
	})
}

// An exec over WebSocket is a GET, and needs the right to create all the same, in
// the member behind the proxy of its Cluster too.
func TestUpgradesNeedCreate(t *testing.T) {
	admin, ns, user := world.System.Kubeconfig(), labtest.Namespace(t, world.System.Kubeconfig()), labtest.UniqueName(t, "reader")
	labtest.MustKubectl(t, admin, `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {isthmus.dev/cluster: m1}}, spec: {containers: [{name: c, image: c}]}}`, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, admin, "", "-n", ns, "wait", "pod/p", "--for=condition=Ready", "--timeout=150s")
	labtest.MustKubectl(t, admin, "", "create", "clusterrole", user, "--verb=get", "--resource=pods,pods/exec,clusters.cluster.karmada.io/proxy")
	labtest.MustKubectl(t, admin, "", "create", "clusterrolebinding", user, "--clusterrole="+user, "--user="+user)
	t.Cleanup(func() {
		labtest.Kubectl(t, admin, "", "delete", "clusterrole,clusterrolebinding", user, "--wait=false")
	})
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(as, prefix string) error {
		c := rest.CopyConfig(config)
		c.Impersonate.UserName = as
		url := c.Host + prefix + "/api/v1/namespaces/" + ns + "/pods/p/exec?command=true&stdout=true"
		e, err := remotecommand.NewWebSocketExecutor(c, http.MethodGet, url)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard})
	}
	const proxied = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy"
	labtest.Eventually(t, cacheTime, func(context.Context) error {
		for _, path := range []string{proxied + "/api/v1/namespaces/" + ns + "/pods/p", "/api/v1/namespaces/" + ns + "/pods/p"} {
			if res := labtest.Kubectl(t, admin, "", "--as="+user, "get", "--raw", path); res.Code != 0 {
				return failed(res.Err)
			}
		}
		return nil
	})
	for _, prefix := range []string{"", proxied} {
		if err := exec("", prefix); err != nil {
			t.Errorf("the administrator's exec at %q: %v", prefix, err)
		}
		if err := exec(user, prefix); err == nil || !strings.Contains(err.Error(), "403") && !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("who may only get has an exec at %q: %v", prefix, err)
		}
	}
}
