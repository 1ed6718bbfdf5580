package membership

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// Errors of a Cluster that cannot be reached as it is written.
var (
	ErrNoEndpoint    = errors.New("spec.apiEndpoint is not usable")
	ErrNoCredentials = errors.New("credentials are not usable")
)

// Access is the way to a member and who we are there, without the token: two
// equal values make the same connection.
type Access struct {
	Host                  string
	CA, Cert, Key         string
	ServerName            string
	Insecure              bool
	ProxyURL, ProxyHeader string
}

// AccessOf reads the way to a member out of its Cluster and a credential
// Secret. The token is returned apart, since it changes without a new
// connection.
func AccessOf(cluster *v1alpha1.Cluster, secret *corev1.Secret) (a Access, token string, err error) {
	if a.Host, err = endpointURL(cluster.Spec.APIEndpoint); err != nil {
		return Access{}, "", err
	}
	a.Insecure = cluster.Spec.InsecureSkipTLSVerification
	if err := a.setProxy(cluster.Spec.ProxyURL, cluster.Spec.ProxyHeader); err != nil {
		return Access{}, "", err
	}
	if token, err = a.setCredentials(secret.Data); err != nil {
		return Access{}, "", fmt.Errorf("%w: Secret %s/%s: %w", ErrNoCredentials, secret.Namespace, secret.Name, err)
	}
	return a, token, nil
}

// endpointURL completes and checks spec.apiEndpoint.
func endpointURL(endpoint string) (string, error) {
	if endpoint == "" {
		return "", fmt.Errorf("%w: it is empty", ErrNoEndpoint)
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoEndpoint, err)
	}
	switch {
	case u.Scheme != "https":
		return "", fmt.Errorf("%w: scheme %q, want https", ErrNoEndpoint, u.Scheme)
	case u.Hostname() == "":
		return "", fmt.Errorf("%w: %q has no host", ErrNoEndpoint, endpoint)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%w: it must have no user, query or fragment", ErrNoEndpoint)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

func (a *Access) setProxy(proxyURL string, header map[string]string) error {
	if proxyURL == "" {
		return nil
	}
	u, err := url.Parse(proxyURL)
	if err != nil {
		return fmt.Errorf("%w: spec.proxyURL: %w", ErrNoEndpoint, err)
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return fmt.Errorf("%w: spec.proxyURL has scheme %q, want http, https or socks5", ErrNoEndpoint, u.Scheme)
	}
	a.ProxyURL = proxyURL
	lines := make([]string, 0, len(header))
	for k, v := range header {
		if strings.ContainsAny(k+v, "\r\n\x00") {
			return fmt.Errorf("%w: spec.proxyHeader %q has a control character", ErrNoEndpoint, k)
		}
		lines = append(lines, http.CanonicalHeaderKey(k)+"\n"+v)
	}
	slices.Sort(lines)
	a.ProxyHeader = strings.Join(lines, "\n")
	return nil
}

func (a *Access) setCredentials(data map[string][]byte) (string, error) {
	ca := data[v1alpha1.SecretCADataKey]
	if len(ca) == 0 {
		ca = data[v1alpha1.SecretCACertKey]
	}
	// An insecure connection and a CA exclude each other in client-go.
	if len(ca) > 0 && !a.Insecure {
		if !x509.NewCertPool().AppendCertsFromPEM(ca) {
			return "", fmt.Errorf("%s holds no PEM certificate", v1alpha1.SecretCADataKey)
		}
		a.CA = string(ca)
	}
	a.ServerName = string(data[v1alpha1.SecretServerNameKey])
	cert, key := data[v1alpha1.SecretClientCertKey], data[v1alpha1.SecretClientKeyKey]
	if len(cert) > 0 || len(key) > 0 {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			// The error of X509KeyPair names no key material.
			return "", fmt.Errorf("%s and %s: %w", v1alpha1.SecretClientCertKey, v1alpha1.SecretClientKeyKey, err)
		}
		a.Cert, a.Key = string(cert), string(key)
	}
	token := strings.TrimSpace(string(data[v1alpha1.SecretTokenKey]))
	if token == "" && a.Cert == "" {
		return "", fmt.Errorf("it has neither %s nor %s", v1alpha1.SecretTokenKey, v1alpha1.SecretClientCertKey)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%s has a character that no token has", v1alpha1.SecretTokenKey)
	}
	return token, nil
}

// config makes a rest.Config whose connections can be closed together. Every
// call makes another connection pool.
func (a Access) config(userAgent string) (*rest.Config, *connrotation.Dialer, error) {
	dial := (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	c := &rest.Config{
		Host:      a.Host,
		UserAgent: userAgent,
		// Limits are the business of who uses it.
		QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure: a.Insecure, ServerName: a.ServerName,
			CAData: []byte(a.CA), CertData: []byte(a.Cert), KeyData: []byte(a.Key),
		},
	}
	if a.ProxyURL != "" {
		u, err := url.Parse(a.ProxyURL)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: spec.proxyURL: %w", ErrNoEndpoint, err)
		}
		if a.ProxyHeader == "" {
			c.Proxy = http.ProxyURL(u)
		} else {
			dial = connectThrough(u, parseProxyHeader(a.ProxyHeader), dial)
			c.Proxy = noProxy
		}
	}
	d := connrotation.NewDialer(dial)
	c.Dial = d.DialContext
	return c, d, nil
}

func noProxy(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // the contract of http.Transport.Proxy

func parseProxyHeader(s string) http.Header {
	h := http.Header{}
	parts := strings.Split(s, "\n")
	for i := 0; i+1 < len(parts); i += 2 {
		for v := range strings.SplitSeq(parts[i+1], ",") {
			h.Add(parts[i], strings.TrimSpace(v))
		}
	}
	return h
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// ConfigOf makes a plain rest.Config out of a Cluster and a credential Secret,
// for tools: without the identity check and the rotation of a Directory's.
func ConfigOf(cluster *v1alpha1.Cluster, secret *corev1.Secret) (*rest.Config, error) {
	access, token, err := AccessOf(cluster, secret)
	if err != nil {
		return nil, err
	}
	config, _, err := access.config("isthmus")
	if err != nil {
		return nil, err
	}
	config.BearerToken = token
	return config, nil
}
