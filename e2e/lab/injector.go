package lab

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Injection is what happens to one request on its way to a member.
type Injection int

// Injections.
const (
	// Pass it on.
	Pass Injection = iota
	// Refuse it with Fault.Code; the member never sees it.
	Refuse
	// LoseRequest: the member never sees it, the client gets no answer.
	LoseRequest
	// LoseAnswer: the member does it, the client gets no answer.
	LoseAnswer
	// CutAnswer: the member does it, the answer breaks off in the middle.
	CutAnswer
	// Repeat: the member gets it twice, the client the second answer.
	Repeat
	// RepeatEvents: every event of a watch comes twice.
	RepeatEvents
	// Silence: the answer begins as that of a watch does, and nothing comes; the
	// connection is well.
	Silence
)

func (i Injection) String() string {
	return [...]string{"pass", "refuse", "lose the request", "lose the answer", "cut the answer", "repeat", "repeat events", "silence"}[i]
}

// Fault says what happens, with its details.
type Fault struct {
	Injection
	// Code of a refusal; 429 and 503 come with Retry-After: 1.
	Code int
	// Hang is how long nothing is said before the connection ends, where an
	// answer is lost; less when the client goes first.
	Hang time.Duration
}

// Injector stands before a member with a certificate of its own and breaks
// single requests, where a Proxy breaks connections.
type Injector struct {
	server *httptest.Server
	relay  *httputil.ReverseProxy

	mu     sync.Mutex
	decide func(*http.Request) Fault
	counts map[string]int
}

// NewInjector starts one before a member; it passes everything on until told.
func NewInjector(m *Member) (*Injector, error) {
	config, err := m.RESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.AnonymousClientConfig(config)
	config.NextProtos = []string{"http/1.1"} // for upgrades
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("injector: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("injector: %w", err)
	}
	return newInjector(transport, target), nil
}

// silent: that connections break is what an injector is for.
var silent = log.New(io.Discard, "", 0)

func newInjector(transport http.RoundTripper, target *url.URL) *Injector {
	i := &Injector{counts: map[string]int{}}
	i.relay = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) },
		// A member that is away is a connection that ends, not an answer of ours.
		ErrorLog:     silent,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	i.server = httptest.NewUnstartedServer(i)
	i.server.EnableHTTP2 = true
	i.server.Config.ErrorLog = silent
	i.server.StartTLS()
	return i
}

// Addr is HOST:PORT of the injector.
func (i *Injector) Addr() string { return i.server.Listener.Addr().String() }

// Close ends it and its connections.
func (i *Injector) Close() {
	i.server.CloseClientConnections()
	i.server.Close()
}

// Set has decide choose for each request from now on; nil passes all on.
func (i *Injector) Set(decide func(*http.Request) Fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.decide = decide
}

// Counts are how often each injection was made.
func (i *Injector) Counts() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := map[string]int{}
	for k, n := range i.counts {
		out[k] = n
	}
	return out
}

func (i *Injector) choose(r *http.Request) Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.decide == nil {
		return Fault{}
	}
	f := i.decide(r)
	switch f.Injection {
	case Pass:
	case Refuse:
		i.counts[strconv.Itoa(f.Code)]++
	default:
		i.counts[f.String()]++
	}
	return f
}

// ServeHTTP implements http.Handler.
func (i *Injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := i.choose(r)
	switch f.Injection {
	case Pass:
		i.relay.ServeHTTP(w, r)
	case Refuse:
		refuse(w, f.Code)
	case LoseRequest:
		f.hang(r)
	case LoseAnswer:
		if _, err := i.deliver(r, 1); err == nil {
			f.hang(r)
		}
		panic(http.ErrAbortHandler)
	case CutAnswer:
		answer, err := i.deliver(r, 1)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		answer.write(w, answer.body.Len()/2)
		panic(http.ErrAbortHandler)
	case Repeat:
		answer, err := i.deliver(r, 2)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		answer.write(w, answer.body.Len())
	case RepeatEvents:
		r.Header.Set("Accept-Encoding", "identity") // lines are read
		i.relay.ServeHTTP(&doubler{ResponseWriter: w}, r)
	case Silence:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func (f Fault) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(f.Hang):
	}
	panic(http.ErrAbortHandler)
}

// refuse answers as an API server refuses.
func refuse(w http.ResponseWriter, code int) {
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
	}
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"injected","reason":%q,"code":%d}`, reasons[code], code)
}

// answered is an answer that is held back.
type answered struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answered) Header() http.Header         { return a.header }
func (a *answered) WriteHeader(code int)        { a.code = code }
func (a *answered) Write(p []byte) (int, error) { return a.body.Write(p) }

func (a *answered) write(w http.ResponseWriter, upTo int) {
	for key, values := range a.header {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()[:upTo])
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

var errUndelivered = errors.New("not delivered")

// deliver brings a request to the member, though its client may go meanwhile,
// and returns the last answer.
func (i *Injector) deliver(r *http.Request, times int) (answer *answered, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	defer func() {
		if recover() != nil { // what a member that is away ends in
			err = errUndelivered
		}
	}()
	for range times {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
		again := r.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(body))
		answer = &answered{header: http.Header{}, code: http.StatusOK}
		i.relay.ServeHTTP(answer, again)
		cancel()
	}
	return answer, nil
}

// doubler writes every line twice, as soon as it is whole.
type doubler struct {
	http.ResponseWriter
	line []byte
}

// Unwrap is for http.ResponseController.
func (d *doubler) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *doubler) Write(p []byte) (int, error) {
	d.line = append(d.line, p...)
	at := bytes.LastIndexByte(d.line, '\n') + 1
	for line := range bytes.Lines(d.line[:at]) {
		if _, err := d.ResponseWriter.Write(append(bytes.Clone(line), line...)); err != nil {
			return 0, err
		}
	}
	d.line = bytes.Clone(d.line[at:])
	return len(p), nil
}

// Kubeconfig writes an administrator's kubeconfig that reaches the member
// through the injector at HOST:PORT (its own, or a Proxy's before it).
func (i *Injector) Kubeconfig(ctx context.Context, m *Member, address string) (string, error) {
	token, err := administratorToken(ctx, m)
	if err != nil {
		return "", fmt.Errorf("injector: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   "https://" + address,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}),
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("injector: %w", err)
	}
	path := m.file("kubeconfig-via-" + strings.ReplaceAll(address, ":", "-"))
	return path, writeFile(path, data, os.FileMode(0o600))
}

// administratorToken is a token of a member's ServiceAccount that may do all:
// a certificate does not pass an injector.
func administratorToken(ctx context.Context, m *Member) (string, error) {
	client, err := m.Client()
	if err != nil {
		return "", err
	}
	name := metav1.ObjectMeta{Name: "lab-administrator", Namespace: metav1.NamespaceSystem}
	account := &corev1.ServiceAccount{ObjectMeta: name}
	if _, err := client.CoreV1().ServiceAccounts(name.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name.Name, Namespace: name.Namespace}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	request, err := client.CoreV1().ServiceAccounts(name.Namespace).CreateToken(ctx, name.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}
