package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakePods is the API: one Pod that can go.
type fakePods struct {
	mu  sync.Mutex
	pod *corev1.Pod
}

func (f *fakePods) Get(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pod == nil || f.pod.Namespace != namespace || f.pod.Name != name {
		return nil, ErrNotFound
	}
	return f.pod.DeepCopy(), nil
}

func (f *fakePods) change(change func(*corev1.Pod) *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pod = change(f.pod)
}

func runningPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}, {Name: "waits"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
		}},
	}
}

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a := authority{}
	pair := a.sign(t, template)
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey) //nolint:forcetypeassert // sign made it
	return a
}

func (a authority) sign(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a authority) issue(t *testing.T, name string, groups ...string) tls.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	})
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// served starts a server and returns its address, its authority and its Pods.
func served(t *testing.T) (string, authority, *fakePods, *Server) {
	t.Helper()
	ca, pods := newAuthority(t), &fakePods{pod: runningPod()}
	s := New(Options{Cluster: "m1", Dir: t.TempDir(), Pods: pods, Upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "upstream "+r.URL.Path)
	})})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Serve(ctx, l, &tls.Config{
			Certificates: []tls.Certificate{ca.issue(t, "kubelet")}, ClientCAs: ca.pool(),
			ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "https://" + l.Addr().String(), ca, pods, s
}

func (a authority) client(t *testing.T, certs ...tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool(), Certificates: certs, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func TestWhoMayDoWhat(t *testing.T) {
	address, ca, _, _ := served(t)
	nobody, user := ca.client(t), ca.client(t, ca.issue(t, "user", "team"))
	master := ca.client(t, ca.issue(t, "apiserver", "system:masters"))
	for _, tc := range []struct {
		client       *http.Client
		method, path string
		code         int
		body         string
	}{
		{nobody, "GET", "/healthz", 200, "ok"},
		{nobody, "POST", "/run/default/web/c?cmd=true", 401, "Unauthorized"},
		{nobody, "GET", "/containerLogs/default/web/c", 401, ""},
		{nobody, "GET", "/metrics/resource", 401, ""},
		{user, "POST", "/run/default/web/c?cmd=true", 403, "user=user"},
		{user, "POST", "/exec/default/web/c?command=true&output=1", 403, ""},
		{user, "POST", "/portForward/default/web", 403, ""},
		{master, "POST", "/run/default/web/c?cmd=printenv+CLUSTER", 200, "m1\n"},
		{master, "POST", "/run/default/web/u1/c?cmd=echo+hi", 200, "hi\n"},
		{master, "POST", "/run/default/web/other/c?cmd=echo+hi", 404, ""},
		{master, "POST", "/run/default/web/c", 400, ""},
		{master, "POST", "/run/default/web/nope?cmd=true", 404, ""},
		{master, "POST", "/run/default/web/c?cmd=false", 500, "exit status 1"},
		{master, "POST", "/exec/default/web/c?command=true", 400, "stdin, stdout"},
		{master, "POST", "/exec/default/web/c?output=1", 400, "no command"},
		{master, "POST", "/exec/default/web/waits?command=true&output=1", 404, "not running"},
		{master, "POST", "/exec/default/nope/c?command=true&output=1", 404, ""},
		{master, "GET", "/containerLogs/default/web/waits", 400, "waiting to start: ContainerCreating"},
		{master, "GET", "/containerLogs/default/web/c?previous=true", 400, "previous terminated"},
		{master, "GET", "/containerLogs/default/web/c?tailLines=-1", 400, "tailLines"},
		{master, "GET", "/containerLogs/default/web/..%2f..%2fc", 404, ""},
		{master, "GET", "/metrics/nodes/n/metrics/resource", 200, "upstream /metrics/nodes/n/metrics/resource"},
		{master, "GET", "/anything", 404, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, address+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tc.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", tc.path, err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != tc.code || !strings.Contains(string(body), tc.body) {
			t.Errorf("%s %s: %d %q, %v, want %d %q", tc.method, tc.path, resp.StatusCode, body, err, tc.code, tc.body)
		}
	}
	stranger := newAuthority(t)
	foreign := ca.client(t, stranger.issue(t, "apiserver", "system:masters"))
	if resp, err := foreign.Post(address+"/run/default/web/c?cmd=true", "", nil); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a certificate of another CA: %s", resp.Status)
		}
	}
}

// A log is followed until its container is gone, and the next reader sees what
// was said meanwhile.
func TestFollow(t *testing.T) {
	address, ca, pods, s := served(t)
	client := ca.client(t, ca.issue(t, "apiserver", "system:masters"))
	shared := filepath.Join(s.opts.Dir, sharedLog)
	say := func(text string) {
		t.Helper()
		if err := appendFile(shared, logLine{at: time.Now(), stream: "stdout", text: []byte(text)}.encode()); err != nil {
			t.Fatal(err)
		}
	}
	say("before")
	resp, err := client.Get(address + "/containerLogs/default/web/c?follow=true&tailLines=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	next("before")
	say("after")
	next("after")
	next("line 1 from container c of pod default/web in cluster m1")
	next("line 2 from container c of pod default/web in cluster m1")
	// A file that begins anew is read from its beginning.
	if err := os.WriteFile(shared, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * followInterval)
	say("anew")
	next("anew")
	pods.change(func(*corev1.Pod) *corev1.Pod { return nil })
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "line ") {
			t.Fatalf("unexpected %q", lines.Text())
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	pods.change(func(*corev1.Pod) *corev1.Pod { return runningPod() })
	again, err := client.Get(address + "/containerLogs/default/web/c")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(again.Body)
	_ = again.Body.Close()
	if err != nil || !bytes.Contains(body, []byte("line 2 from container c")) {
		t.Fatalf("%q, %v: the lines that were followed are lost", body, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pulses) != 0 {
		t.Fatalf("%d containers write with nobody listening", len(s.pulses))
	}
}

// Both ends of a forwarded connection close on their own; there is none to a Pod
// that is gone, or to the next of its name.
func TestPodWeb(t *testing.T) {
	pod := runningPod()
	pods := &fakePods{pod: pod}
	s := New(Options{Cluster: "m1", Pods: pods})
	for i := range 3 {
		ours, theirs, err := socketPair()
		if err != nil {
			t.Fatal(err)
		}
		forwarded := make(chan error, 1)
		go func() { forwarded <- forwarder{t.Context(), s, pod}.PortForward(t.Context(), "", "", 8080, theirs) }()
		if _, err := io.WriteString(ours, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // the answer comes after the end of the question
			if err := ours.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-forwarded; err != nil {
			t.Fatal(err)
		}
		_ = theirs.Close()
		answer, err := io.ReadAll(ours)
		if err != nil || !strings.HasSuffix(string(answer), "\r\n\r\nhello from cluster m1, pod default/web, port 8080\n") {
			t.Fatalf("%q, %v", answer, err)
		}
		_ = ours.Close()
	}
	next := runningPod()
	next.UID = "u2"
	for _, now := range []*corev1.Pod{next, nil} {
		pods.change(func(*corev1.Pod) *corev1.Pod { return now })
		err := forwarder{t.Context(), s, pod}.PortForward(t.Context(), "", "", echoPort, nil)
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("a connection to a Pod that is gone: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.web.dial(podAddress{"default", "web", 80}); err == nil {
		t.Fatal("a closed server was reached")
	}
}
