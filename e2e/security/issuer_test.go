package security

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

const clientID = "isthmus"

// issuer is an OpenID Connect provider with one key at a time.
type issuer struct {
	server *httptest.Server

	mu  sync.Mutex
	key *rsa.PrivateKey
	id  int
	// issued are all tokens that were ever signed.
	issued []string
}

func newIssuer() *issuer {
	i := &issuer{}
	i.rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.server.URL, "jwks_uri": i.server.URL + "/keys", "authorization_endpoint": i.server.URL + "/authorize",
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": strconv.Itoa(i.id),
			"n": encode(i.key.N.Bytes()), "e": encode(big.NewInt(int64(i.key.E)).Bytes()),
		}}})
	})
	i.server = httptest.NewTLSServer(mux)
	return i
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client sees what is wrong
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// rotate replaces the key; what was signed with the old one is not valid any more.
func (i *issuer) rotate() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.id = key, i.id+1
}

// token signs claims of a user.
func (i *issuer) token(user string, lifetime time.Duration, groups ...string) string {
	return i.sign(map[string]any{
		"iss": i.server.URL, "aud": clientID, "sub": user, "groups": groups,
		"iat": time.Now().Unix(), "exp": time.Now().Add(lifetime).Unix(),
	})
}

func (i *issuer) sign(claims map[string]any) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	header, err := json.Marshal(map[string]string{"alg": "RS256", "kid": strconv.Itoa(i.id)})
	if err != nil {
		panic(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signed := encode(header) + "." + encode(body)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		panic(err)
	}
	token := signed + "." + encode(signature)
	i.issued = append(i.issued, token)
	return token
}

// reviewer is a token webhook: it knows opaque tokens.
type reviewer struct {
	server *httptest.Server

	mu    sync.Mutex
	users map[string]authenticationv1.UserInfo
}

func newReviewer() *reviewer {
	r := &reviewer{users: map[string]authenticationv1.UserInfo{}}
	r.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		user, ok := r.users[review.Spec.Token]
		r.mu.Unlock()
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: user}
		review.Spec.Token = ""
		answer(w, review)
	}))
	return r
}

func (r *reviewer) admit(token string, user authenticationv1.UserInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users[token] = user
}

func (r *reviewer) revoke(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.users, token)
}

// kubeconfigOf leads to a test server.
func kubeconfigOf(s *httptest.Server, token string) []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: certificate(s)}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	data, err := clientcmd.Write(*config)
	if err != nil {
		panic(err)
	}
	return data
}

// administratorToken is a token of a member's ServiceAccount that may do all.
func administratorToken(ctx context.Context, m *lab.Member) (string, error) {
	client, err := m.Client()
	if err != nil {
		return "", err
	}
	name := metav1.ObjectMeta{Name: "joiner", Namespace: metav1.NamespaceSystem}
	if _, err := client.CoreV1().ServiceAccounts(name.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("an administrator's ServiceAccount: %w", err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name.Name, Namespace: name.Namespace}},
	}, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("an administrator's binding: %w", err)
	}
	request, err := client.CoreV1().ServiceAccounts(name.Namespace).CreateToken(ctx, name.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("an administrator's token: %w", err)
	}
	return request.Status.Token, nil
}
