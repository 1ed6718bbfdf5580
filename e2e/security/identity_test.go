package security

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// cacheTime is how long kube-apiserver remembers that a token is good.
const cacheTime = 30 * time.Second

// withToken is a client of the endpoint that has nothing but a token.
func withToken(t testing.TB, token string) *rest.Config {
	t.Helper()
	config := rest.AnonymousClientConfig(labtest.Config(t, world.System))
	config.BearerToken = token
	return config
}

func clientOf(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// whoami is the user that the endpoint takes a client for.
func whoami(ctx context.Context, client kubernetes.Interface) (authenticationv1.UserInfo, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func refusedWithin(t *testing.T, limit time.Duration, client kubernetes.Interface) {
	t.Helper()
	labtest.Eventually(t, limit, func(ctx context.Context) error {
		if _, err := whoami(ctx, client); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
			return fmt.Errorf("answered with %w, want Unauthorized", err)
		}
		return nil
	})
}

// OpenID Connect: a token is good until it expires, as long as its key is the
// issuer's; nothing but the issuer's signature makes a user.
func TestOpenIDConnect(t *testing.T) {
	groups := []string{"team/a b"}
	for n := range 29 {
		groups = append(groups, fmt.Sprintf("group-%d", n))
	}
	client := clientOf(t, withToken(t, world.issuer.token("dora", time.Hour, groups...)))
	user, err := whoami(t.Context(), client)
	if err != nil || user.Username != "oidc:dora" || !slices.Contains(user.Groups, "oidc:team/a b") || len(user.Groups) < 31 {
		t.Fatalf("%+v %v", user, err)
	}
	short := clientOf(t, withToken(t, world.issuer.token("dora", 5*time.Second)))
	if _, err := whoami(t.Context(), short); err != nil {
		t.Errorf("a token of five seconds: %v", err)
	}
	now := time.Now()
	for name, claims := range map[string]map[string]any{
		"expired":            {"aud": clientID, "sub": "dora", "exp": now.Add(-time.Minute).Unix()},
		"for somebody else":  {"aud": "other", "sub": "dora", "exp": now.Add(time.Hour).Unix()},
		"of another issuer":  {"iss": "https://issuer.example.com", "aud": clientID, "sub": "dora", "exp": now.Add(time.Hour).Unix()},
		"without a user":     {"aud": clientID, "exp": now.Add(time.Hour).Unix()},
		"not to be used yet": {"aud": clientID, "sub": "dora", "nbf": now.Add(time.Hour).Unix(), "exp": now.Add(2 * time.Hour).Unix()},
	} {
		if claims["iss"] == nil {
			claims["iss"] = world.issuer.server.URL
		}
		if user, err := whoami(t.Context(), clientOf(t, withToken(t, world.issuer.sign(claims)))); err == nil {
			t.Errorf("a token %s makes %+v", name, user)
		}
	}
	stranger := newIssuer()
	defer stranger.server.Close()
	forged := stranger.sign(map[string]any{"iss": world.issuer.server.URL, "aud": clientID, "sub": "dora", "exp": now.Add(time.Hour).Unix()})
	if user, err := whoami(t.Context(), clientOf(t, withToken(t, forged))); err == nil {
		t.Errorf("another key makes %+v", user)
	}
	refusedWithin(t, 5*time.Second+cacheTime, short)

	old := world.issuer.token("dora", time.Hour)
	world.issuer.rotate()
	fresh := clientOf(t, withToken(t, world.issuer.token("dora", time.Hour)))
	labtest.Eventually(t, cacheTime, func(ctx context.Context) error {
		_, err := whoami(ctx, fresh)
		return err
	})
	refusedWithin(t, cacheTime, clientOf(t, withToken(t, old)))
}

// A webhook says who has a token, with UID and extra fields, and takes it back.
func TestTokenWebhook(t *testing.T) {
	token := labtest.UniqueName(t, "opaque-token-of-walter")
	client := clientOf(t, withToken(t, token))
	if user, err := whoami(t.Context(), client); err == nil {
		t.Errorf("a token that nobody knows makes %+v", user)
	}
	world.reviewer.admit(token, authenticationv1.UserInfo{
		Username: "walter", UID: "42", Groups: []string{"hooked"},
		Extra: map[string]authenticationv1.ExtraValue{"example.com/scopes": {"a", "b"}},
	})
	labtest.Eventually(t, cacheTime, func(ctx context.Context) error {
		user, err := whoami(ctx, client)
		if err == nil && (user.Username != "walter" || user.UID != "42" || !slices.Contains(user.Groups, "hooked") || len(user.Extra["example.com/scopes"]) != 2) {
			return fmt.Errorf("made %+v", user)
		}
		return err
	})
	world.reviewer.revoke(token)
	refusedWithin(t, cacheTime, client)
}

// subjects of the table below: the same rights, by four ways to authenticate.
func authenticated(t *testing.T, ns string) map[string]struct{ config, other *rest.Config } {
	t.Helper()
	hooked := labtest.UniqueName(t, "opaque-token-of-wanda")
	world.reviewer.admit(hooked, authenticationv1.UserInfo{Username: "wanda", Groups: []string{"hooked"}})
	var account string
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		request, err := endpoint(t).CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			account = request.Status.Token
		}
		return err
	})
	impersonating := labtest.Config(t, world.System)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "wanda"}
	out := map[string]struct{ config, other *rest.Config }{
		"OpenID Connect":  {config: withToken(t, world.issuer.token("dora", time.Hour, "team/a b"))},
		"webhook":         {config: withToken(t, hooked)},
		"service account": {config: withToken(t, account)},
		"impersonation":   {config: impersonating},
	}
	return out
}

const memberRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:team/a b"}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: wanda}
- {kind: ServiceAccount, name: default, namespace: NS}
`

// Whoever somebody is, and however that was shown: the same rights hold for
// cached reads, watches, streams of both protocols and writes, in each cluster.
func TestAuthenticatedUsers(t *testing.T) {
	admin := world.System.Kubeconfig()
	mine, other := labtest.Namespace(t, admin), labtest.Namespace(t, admin)
	labtest.MustKubectl(t, admin, strings.ReplaceAll(memberRole, "NS", mine), "-n", mine, "apply", "-f", "-")
	for _, cluster := range []string{"m1", "m2"} {
		for _, ns := range []string{mine, other} {
			runIn(t, ns, "in-"+cluster, cluster)
		}
	}
	for name, user := range authenticated(t, mine) {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, user.config)
			labtest.Eventually(t, cacheTime, func(ctx context.Context) error {
				_, err := client.CoreV1().Pods(mine).List(ctx, metav1.ListOptions{})
				return err
			})
			for _, pod := range []string{"in-m1", "in-m2"} {
				for what, do := range verbs(client, user.config) {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					if err := do(ctx, mine, pod); err != nil {
						t.Errorf("%s of %s, which is allowed: %v", what, pod, err)
					}
					if err := do(ctx, other, pod); err == nil || !strings.Contains(err.Error(), "forbidden") {
						t.Errorf("%s of %s in another namespace: %v, want forbidden", what, pod, err)
					}
					cancel()
				}
			}
		})
	}
}

// verbs are what a user tries on a Pod.
func verbs(client kubernetes.Interface, config *rest.Config) map[string]func(ctx context.Context, ns, pod string) error {
	exec := func(executor func(u string) (remotecommand.Executor, error)) func(ctx context.Context, ns, pod string) error {
		return func(ctx context.Context, ns, pod string) error {
			u := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(ns).Name(pod).SubResource("exec").
				VersionedParams(&corev1.PodExecOptions{Container: "c", Command: []string{"true"}, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
			e, err := executor(u.String())
			if err != nil {
				return err
			}
			return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: discard{}, Stderr: discard{}})
		}
	}
	return map[string]func(ctx context.Context, ns, pod string) error{
		"get": func(ctx context.Context, ns, pod string) error {
			_, err := client.CoreV1().Pods(ns).Get(ctx, pod, metav1.GetOptions{})
			return err
		},
		"list": func(ctx context.Context, ns, _ string) error {
			_, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			return err
		},
		"watch": func(ctx context.Context, ns, _ string) error {
			w, err := client.CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		},
		"log": func(ctx context.Context, ns, pod string) error {
			return client.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{TailLines: new(int64(1))}).Do(ctx).Error()
		},
		"patch": func(ctx context.Context, ns, pod string) error {
			_, err := client.CoreV1().Pods(ns).Patch(ctx, pod, "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"seen":"yes"}}}`), metav1.PatchOptions{})
			return err
		},
		"exec by WebSocket": exec(func(u string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(config, "GET", u)
		}),
		"exec by SPDY": exec(func(u string) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(config, http.MethodPost, mustParse(u))
		}),
		"eviction, tried": func(ctx context.Context, ns, pod string) error {
			return client.CoreV1().Pods(ns).EvictV1(ctx, dryEviction(ns, pod))
		},
	}
}

const impersonationRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: USER}
rules:
- {apiGroups: [""], resources: [users], resourceNames: [wanda], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: USER}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: USER}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "oidc:USER"}]
`

// Only who may impersonate somebody can, and then has that user's rights and no
// more; no header makes a user of a client.
func TestImpersonation(t *testing.T) {
	admin := world.System.Kubeconfig()
	mine := labtest.Namespace(t, admin)
	labtest.MustKubectl(t, admin, strings.ReplaceAll(memberRole, "NS", mine), "-n", mine, "apply", "-f", "-")
	name := labtest.UniqueName(t, "ivan")
	labtest.MustKubectl(t, admin, strings.ReplaceAll(impersonationRole, "USER", name), "apply", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, admin, "", "delete", "clusterrole,clusterrolebinding", name) })
	runIn(t, mine, "web", "m2")
	token := world.issuer.token(name, time.Hour)
	path := "/api/v1/namespaces/" + mine + "/pods/web"
	labtest.Eventually(t, cacheTime, func(ctx context.Context) error {
		if code := askAs(ctx, t, token, path, "Impersonate-User", "wanda"); code != http.StatusOK {
			return fmt.Errorf("as wanda: %d", code)
		}
		return nil
	})
	for what, c := range map[string]struct {
		path   string
		header []string
		want   int
	}{
		"as himself":                        {path, nil, 403},
		"the log, as wanda":                 {path + "/log", []string{"Impersonate-User", "wanda"}, 200},
		"elsewhere, as wanda":               {"/api/v1/namespaces/default/pods", []string{"Impersonate-User", "wanda"}, 403},
		"a cluster, as wanda":               {"/apis/cluster.karmada.io/v1alpha1/clusters/m2/proxy/api/v1/nodes", []string{"Impersonate-User", "wanda"}, 403},
		"as somebody else":                  {path, []string{"Impersonate-User", "isthmus-admin"}, 403},
		"as wanda with a group":             {path, []string{"Impersonate-User", "wanda", "Impersonate-Group", "system:masters"}, 403},
		"as wanda with an extra field":      {path, []string{"Impersonate-User", "wanda", "Impersonate-Extra-Scopes", "all"}, 403},
		"as wanda with a UID":               {path, []string{"Impersonate-User", "wanda", "Impersonate-Uid", "1"}, 403},
		"with a group alone":                {path, []string{"Impersonate-Group", "system:masters"}, 400},
		"as a front proxy":                  {path, []string{"X-Remote-User", "isthmus-admin", "X-Remote-Group", "system:masters"}, 403},
		"as a front proxy, oddly spelt":     {path, []string{"X_Remote_User", "isthmus-admin", "X-Remote-Extra-A", "b"}, 403},
		"asking for what a gateway may ask": {path, []string{"X-Isthmus-Unmanaged", "0", "Isthmus-Fleet", "true"}, 403},
	} {
		if code := askAs(t.Context(), t, token, c.path, c.header...); code != c.want {
			t.Errorf("%s: %d, want %d", what, code, c.want)
		}
	}
	for _, r := range world.impostor.requests(mine) {
		for key := range r.Header {
			if strings.HasPrefix(key, "Impersonate-") || strings.HasPrefix(key, "X-Remote-") {
				t.Errorf("%s %s: the member was sent %s", r.Method, r.URL.Path, key)
			}
		}
	}
}
