package membership

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

func TestAccessOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec v1alpha1.ClusterSpec
		data map[string]string
		err  error
		host string
	}{
		"url":                    {v1alpha1.ClusterSpec{APIEndpoint: "https://10.0.0.1:6443"}, map[string]string{"token": "t"}, nil, "https://10.0.0.1:6443"},
		"path and slash":         {v1alpha1.ClusterSpec{APIEndpoint: "https://x/k8s/c1/"}, map[string]string{"token": "t"}, nil, "https://x/k8s/c1"},
		"host and port":          {v1alpha1.ClusterSpec{APIEndpoint: "m1.example:6443"}, map[string]string{"token": "t"}, nil, "https://m1.example:6443"},
		"token with a newline":   {v1alpha1.ClusterSpec{APIEndpoint: "x"}, map[string]string{"token": " t\n"}, nil, "https://x"},
		"no endpoint":            {v1alpha1.ClusterSpec{}, map[string]string{"token": "t"}, ErrNoEndpoint, ""},
		"plain http":             {v1alpha1.ClusterSpec{APIEndpoint: "http://x"}, map[string]string{"token": "t"}, ErrNoEndpoint, ""},
		"user in the url":        {v1alpha1.ClusterSpec{APIEndpoint: "https://u:p@x"}, map[string]string{"token": "t"}, ErrNoEndpoint, ""},
		"query":                  {v1alpha1.ClusterSpec{APIEndpoint: "https://x?a=b"}, map[string]string{"token": "t"}, ErrNoEndpoint, ""},
		"only a scheme":          {v1alpha1.ClusterSpec{APIEndpoint: "https://"}, map[string]string{"token": "t"}, ErrNoEndpoint, ""},
		"unknown proxy":          {v1alpha1.ClusterSpec{APIEndpoint: "x", ProxyURL: "ftp://p"}, map[string]string{"token": "t"}, ErrNoEndpoint, ""},
		"header injection":       {v1alpha1.ClusterSpec{APIEndpoint: "x", ProxyURL: "http://p", ProxyHeader: map[string]string{"A": "b\r\nC: d"}}, map[string]string{"token": "t"}, ErrNoEndpoint, ""},
		"no credentials":         {v1alpha1.ClusterSpec{APIEndpoint: "x"}, nil, ErrNoCredentials, ""},
		"header in the token":    {v1alpha1.ClusterSpec{APIEndpoint: "x"}, map[string]string{"token": "a\r\nX: y"}, ErrNoCredentials, ""},
		"CA that is none":        {v1alpha1.ClusterSpec{APIEndpoint: "x"}, map[string]string{"token": "t", "caBundle": "hm"}, ErrNoCredentials, ""},
		"certificate, no key":    {v1alpha1.ClusterSpec{APIEndpoint: "x"}, map[string]string{"tls.crt": "c"}, ErrNoCredentials, ""},
		"insecure ignores a CA":  {v1alpha1.ClusterSpec{APIEndpoint: "x", InsecureSkipTLSVerification: true}, map[string]string{"token": "t", "caBundle": "hm"}, nil, "https://x"},
		"proxy with credentials": {v1alpha1.ClusterSpec{APIEndpoint: "x", ProxyURL: "http://u:p@proxy:3128"}, map[string]string{"token": "t"}, nil, "https://x"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "isthmus-system", Name: "m1"}, Data: map[string][]byte{}}
			for k, v := range tc.data {
				secret.Data[k] = []byte(v)
			}
			a, token, err := AccessOf(&v1alpha1.Cluster{Spec: tc.spec}, secret)
			if !errors.Is(err, tc.err) || (err != nil && tc.err == nil) {
				t.Fatalf("err = %v, want %v", err, tc.err)
			}
			if err == nil && (a.Host != tc.host || token != "t") {
				t.Errorf("host %q token %q, want %q", a.Host, token, tc.host)
			}
			if err != nil && strings.Contains(err.Error(), "X: y") {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestConnectThroughProxyWithHeaders(t *testing.T) {
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, "hello"); err != nil {
			t.Error(err)
		}
	}))
	defer member.Close()
	seen := make(chan http.Header, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		select {
		case seen <- r.Header:
		default:
		}
		tunnel(t, w, r.Host)
	}))
	defer proxy.Close()
	a := Access{Host: member.URL}
	if err := a.setProxy(strings.Replace(proxy.URL, "http://", "http://u:p@", 1), map[string]string{"x-tenant": "a, b"}); err != nil {
		t.Fatal(err)
	}
	config, dialer, err := a.config("test")
	if err != nil {
		t.Fatal(err)
	}
	defer dialer.CloseAll()
	client := http.Client{Transport: &http.Transport{DialContext: config.Dial, Proxy: config.Proxy}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(member.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || string(body) != "hello" {
		t.Errorf("body %q, err %v", body, err)
	}
	h := <-seen
	if got := h.Values("X-Tenant"); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("X-Tenant = %q", got)
	}
	if h.Get("Proxy-Authorization") == "" {
		t.Error("the proxy's own credentials were not sent")
	}
}

func TestConnectRefused(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = connectThrough(u, http.Header{}, (&net.Dialer{}).DialContext)(t.Context(), "tcp", "m1:443")
	if err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("err = %v", err)
	}
}

func tunnel(t *testing.T, w http.ResponseWriter, to string) {
	up, err := net.Dial("tcp", to)
	if err != nil {
		t.Error(err)
		return
	}
	w.WriteHeader(http.StatusOK)
	down, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	go pipe(up, rw.Reader)
	go pipe(down, bufio.NewReader(up))
}

// pipe copies until either side ends; how it ends is of no interest.
func pipe(to net.Conn, from io.Reader) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}
