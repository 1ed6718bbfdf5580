package outage

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const shortLifetime = 10 * time.Minute // the least that a kube-apiserver grants

// joinM3 makes m3 a member until the end of the test.
func joinM3(t testing.TB, flags ...string) {
	t.Helper()
	joinM3By(t, world.m3.Kubeconfig(), flags...)
}

// joinM3By joins m3 as a kubeconfig reaches it.
func joinM3By(t testing.TB, kubeconfig string, flags ...string) {
	t.Helper()
	t.Cleanup(func() {
		if res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "get", "cluster", "m3"); strings.Contains(res.Err, "not found") {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), within(time.Minute))
		defer cancel()
		out, err := world.System.Command(ctx, "unjoin", "m3", "--force", "--member-kubeconfig", world.m3.Kubeconfig())
		if err != nil {
			t.Errorf("unjoin m3: %v\n%s", err, out)
		}
	})
	// What an earlier test left is being deleted.
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		_, err := labtest.Client(t, world.m3).CoreV1().Namespaces().Get(ctx, ourNamespace, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s in m3: %v, want none", ourNamespace, err)
		}
		return nil
	})
	command(t, append([]string{"join", "m3", "--member-kubeconfig", kubeconfig}, flags...)...)
}

// Credentials of a member are as weak and short-lived as promised, renewed in
// time, followed when they change, and reported when they are wrong.
func TestCredentials(t *testing.T) {
	joinM3(t, "--token-lifetime", shortLifetime.String())
	awaitLive(t, "m3")
	t.Run("rights", identitiesAreRefused)
	t.Run("expiry", func(t *testing.T) {
		for _, name := range []string{"m3", "m3-apply"} {
			claims := claimsOf(t, credentials(t, name).Data["token"])
			if life := time.Duration(claims.Expires-claims.IssuedAt) * time.Second; life <= 0 || life > shortLifetime+time.Minute {
				t.Errorf("the token of %s lives %s, want %s", name, life, shortLifetime)
			}
		}
	})
	t.Run("renewal", tokenIsRenewed)
	t.Run("wrong token", wrongTokenIsReported)
	t.Run("replaced Secret", replacedSecretIsFollowed)
}

func credentials(t testing.TB, name string) *corev1.Secret {
	t.Helper()
	secret, err := labtest.Client(t, world.System).CoreV1().Secrets(ourNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func setToken(t testing.TB, secretName string, token []byte) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]any{"token": token}})
	if err != nil {
		t.Fatal(err)
	}
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ourNamespace, "patch", "secret", secretName, "--type=merge", "-p", string(patch))
}

// withToken is a client of a member that has nothing but a token.
func withToken(t testing.TB, m *lab.Member, token []byte) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(labtest.Config(t, m))
	config.BearerToken = string(token)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

const rbac = "rbac.authorization.k8s.io"

type attr = authorizationv1.ResourceAttributes

// rights of the identities, by the Secrets of their tokens.
var rights = map[string]struct {
	may, mayNot []attr
}{
	"m3": {
		may: []attr{
			{Verb: "watch", Resource: "pods"},
			{Verb: "delete", Resource: "pods", Namespace: "default"},
			{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "default"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: ourNamespace, Name: "isthmus-read"},
		},
		mayNot: []attr{
			{Verb: "get", Resource: "secrets", Namespace: "default"},
			{Verb: "list", Resource: "secrets"},
			{Verb: "watch", Resource: "secrets"},
			{Verb: "get", Resource: "configmaps", Namespace: "default"},
			{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "default"},
			{Verb: "delete", Group: "apps", Resource: "deployments", Namespace: "default"},
			{Verb: "escalate", Group: rbac, Resource: "roles"},
			{Verb: "escalate", Group: rbac, Resource: "clusterroles"},
			{Verb: "bind", Group: rbac, Resource: "clusterroles"},
			{Verb: "create", Group: rbac, Resource: "rolebindings", Namespace: "default"},
			{Verb: "create", Group: rbac, Resource: "clusterrolebindings"},
			{Verb: "impersonate", Resource: "users"},
			{Verb: "impersonate", Resource: "serviceaccounts"},
			{Verb: "impersonate", Resource: "groups"},
			{Verb: "get", Resource: "nodes", Subresource: "proxy"},
			{Verb: "delete", Resource: "namespaces"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: ourNamespace, Name: "isthmus-apply"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "kube-system", Name: "default"},
			{Verb: "*", Group: "*", Resource: "*"},
		},
	},
	"m3-apply": {
		may: []attr{
			{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "default"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: ourNamespace, Name: "isthmus-apply"},
		},
		mayNot: []attr{
			{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "default"},
			{Verb: "get", Resource: "pods", Subresource: "exec", Namespace: "default"},
			{Verb: "create", Resource: "pods", Subresource: "attach", Namespace: "default"},
			{Verb: "create", Resource: "pods", Subresource: "portforward", Namespace: "default"},
			{Verb: "create", Resource: "pods", Namespace: "default"},
			{Verb: "delete", Resource: "pods", Namespace: "default"},
			{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "default"},
			{Verb: "update", Resource: "nodes"},
			{Verb: "delete", Resource: "nodes"},
			{Verb: "get", Resource: "nodes", Subresource: "proxy"},
			{Verb: "impersonate", Resource: "users"},
			{Verb: "impersonate", Resource: "serviceaccounts"},
			{Verb: "impersonate", Resource: "groups"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "kube-system", Name: "default"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: ourNamespace, Name: "isthmus-read"},
			{Verb: "create", Group: rbac, Resource: "clusterrolebindings"},
			{Verb: "escalate", Group: rbac, Resource: "clusterroles"},
			{Verb: "escalate", Group: rbac, Resource: "clusterroles", Name: "isthmus-apply"},
			{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system"},
			{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
			{Verb: "create", Group: "apiregistration.k8s.io", Resource: "apiservices"},
			{Verb: "*", Group: "*", Resource: "*"},
		},
	},
}

// identitiesAreRefused asks the member itself, with the tokens that it gave.
func identitiesAreRefused(t *testing.T) {
	for name, tc := range rights {
		client := withToken(t, world.m3, credentials(t, name).Data["token"])
		for want, list := range map[bool][]attr{true: tc.may, false: tc.mayNot} {
			for _, a := range list {
				review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if review.Status.Allowed != want {
					t.Errorf("%s: %s %s.%s/%s %s/%s allowed is %v, want %v", name, a.Verb, a.Resource, a.Group, a.Subresource, a.Namespace, a.Name, review.Status.Allowed, want)
				}
			}
		}
		if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); name == "m3" && err == nil {
			t.Errorf("%s reads the Secrets of kube-system", name)
		}
	}
}

// claims of a token of a ServiceAccount.
type claims struct {
	Issuer     string          `json:"iss"`
	Subject    string          `json:"sub"`
	Audience   []string        `json:"aud"`
	Expires    int64           `json:"exp"`
	IssuedAt   int64           `json:"iat"`
	NotBefore  int64           `json:"nbf"`
	ID         string          `json:"jti,omitempty"`
	Kubernetes json.RawMessage `json:"kubernetes.io"`
}

func claimsOf(t testing.TB, token []byte) claims {
	t.Helper()
	parts := strings.Split(string(token), ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// aged is the same token as if it had been issued earlier, signed by the
// member's own key.
func aged(t testing.TB, m *lab.Member, token []byte, by time.Duration) []byte {
	t.Helper()
	c := claimsOf(t, token)
	seconds := int64(by / time.Second)
	c.IssuedAt, c.NotBefore, c.Expires = c.IssuedAt-seconds, c.NotBefore-seconds, c.Expires-seconds
	payload, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(m.Dir(), "pki", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("sa.key is no PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := strings.Cut(string(token), ".")
	signed := header + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	const half = 32 // bytes of a P-256 coordinate
	signature := make([]byte, 2*half)
	r.FillBytes(signature[:half])
	s.FillBytes(signature[half:])
	return []byte(signed + "." + base64.RawURLEncoding.EncodeToString(signature))
}

// tokenIsRenewed ages the tokens past 80 % of their life.
func tokenIsRenewed(t *testing.T) {
	for _, name := range []string{"m3", "m3-apply"} {
		old := aged(t, world.m3, credentials(t, name).Data["token"], shortLifetime*85/100)
		if _, err := withToken(t, world.m3, old).Discovery().ServerVersion(); err != nil {
			t.Fatalf("the member does not accept the aged token of %s: %v", name, err)
		}
		setToken(t, name, old)
		labtest.Eventually(t, within(time.Minute), func(context.Context) error {
			now := credentials(t, name).Data["token"]
			if string(now) == string(old) {
				return fmt.Errorf("the token of %s is not renewed at 85 %% of its life", name)
			}
			if left := time.Until(time.Unix(claimsOf(t, now).Expires, 0)); left < shortLifetime*8/10 {
				return fmt.Errorf("the new token of %s lives %s", name, left)
			}
			return nil
		})
	}
	awaitCondition(t, 30*time.Second, "m3", "CredentialsValid", isTrue)
}

func wrongTokenIsReported(t *testing.T) {
	ns := memberNamespace(t, "wrong", world.m3)
	runPod(t, world.m3, ns, "a")
	served(t, 20*time.Second, ns, "a", "m3")
	good := credentials(t, "m3").Data["token"]
	setToken(t, "m3", []byte("not-a-token"))
	t.Cleanup(func() { setToken(t, "m3", good) })
	said := awaitCondition(t, time.Minute, "m3", "CredentialsValid", func(c condition) bool { return c.status == "False" })
	if said.reason != "Unauthorized" {
		t.Errorf("CredentialsValid is %s, want the reason Unauthorized", said)
	}
	awaitCondition(t, time.Minute, "m3", "Ready", func(c condition) bool { return c.status == "False" && c.reason == "Unauthorized" })

	setToken(t, "m3", good)
	repaired := time.Now()
	awaitCondition(t, 30*time.Second, "m3", "CredentialsValid", isTrue)
	awaitCondition(t, 30*time.Second, "m3", "Ready", isTrue)
	if took := time.Since(repaired); took > within(30*time.Second) {
		t.Errorf("Ready %s after the repair, want 30 s", took)
	}
	worksAgain(t, ns, "b")
}

// replacedSecretIsFollowed revokes the old token: its Secret is deleted and made
// anew with another.
func replacedSecretIsFollowed(t *testing.T) {
	ns := memberNamespace(t, "rotated", world.m3)
	secrets := labtest.Client(t, world.System).CoreV1().Secrets(ourNamespace)
	secret := credentials(t, "m3")
	if err := secrets.Delete(t.Context(), "m3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, time.Minute, "m3", "CredentialsValid", func(c condition) bool { return c.status == "False" })
	out := labtest.MustKubectl(t, world.m3.Kubeconfig(), "", "-n", ourNamespace, "create", "token", "isthmus-read", "--duration", shortLifetime.String())
	secret.ObjectMeta = metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels, Annotations: secret.Annotations}
	secret.Data["token"] = []byte(strings.TrimSpace(out))
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, 30*time.Second, "m3", "CredentialsValid", isTrue)
	worksAgain(t, ns, "c")
}

// worksAgain: events come, and so do streams.
func worksAgain(t *testing.T, ns, name string) {
	t.Helper()
	runPod(t, world.m3, ns, name)
	served(t, 30*time.Second, ns, name, "m3")
	res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "-n", ns, "exec", name, "--", "sh", "-c", "echo in $CLUSTER")
	if res.Code != 0 || !strings.Contains(res.Out, "in m3") {
		t.Errorf("exec: exit %d, %q, %q", res.Code, res.Out, res.Err)
	}
}
