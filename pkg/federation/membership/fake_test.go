package membership

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/client"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// playedMember is a member's API as far as membership speaks to it.
type playedMember struct {
	server *httptest.Server

	mu       sync.Mutex
	uid      types.UID
	tokens   map[string]bool // accepted
	ready    int             // status of /readyz
	requests []string
	issue    func() string // the next token
}

func playMember(t *testing.T, uid types.UID, tokens ...string) *playedMember {
	t.Helper()
	m := &playedMember{uid: uid, tokens: map[string]bool{}, ready: http.StatusOK}
	for _, token := range tokens {
		m.tokens[token] = true
	}
	m.server = httptest.NewTLSServer(m)
	t.Cleanup(m.server.Close)
	return m
}

func (m *playedMember) change(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
}

func (m *playedMember) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.server.Certificate().Raw})
}

// ServeHTTP implements http.Handler.
func (m *playedMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, r.Method+" "+r.URL.Path)
	if !m.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			panic(err)
		}
	}
	switch {
	case r.URL.Path == "/readyz":
		w.WriteHeader(m.ready)
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		answer(&metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: m.uid},
		})
	case strings.HasSuffix(r.URL.Path, "/token") && m.issue != nil:
		token := m.issue()
		m.tokens[token] = true
		answer(&authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			Status:   authenticationv1.TokenRequestStatus{Token: token},
		})
	case r.URL.Path == "/redirect":
		http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusFound)
	default:
		http.NotFound(w, r)
	}
}

// playedClusters is a control plane's Clusters in memory.
func playedClusters(t *testing.T) client.Clusters {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	f := &clienttesting.Fake{}
	versions := &optimistic{tracker: tracker}
	f.AddReactor("create", "*", versions.create)
	f.AddReactor("update", "*", versions.update)
	f.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	f.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	return unstreamed{gentype.NewFakeClientWithList[*v1alpha1.Cluster, *v1alpha1.ClusterList](
		f, "", v1alpha1.ClusterResource, v1alpha1.ClusterKind,
		func() *v1alpha1.Cluster { return &v1alpha1.Cluster{} },
		func() *v1alpha1.ClusterList { return &v1alpha1.ClusterList{} },
		func(dst, src *v1alpha1.ClusterList) { dst.ListMeta = src.ListMeta },
		func(l *v1alpha1.ClusterList) []*v1alpha1.Cluster { return gentype.ToPointerSlice(l.Items) },
		func(l *v1alpha1.ClusterList, items []*v1alpha1.Cluster) { l.Items = gentype.FromPointerSlice(items) },
	)}
}

// optimistic gives a tracker what the controller relies on and a tracker lacks:
// resourceVersions, conflicts, and a status that only its subresource changes.
type optimistic struct {
	mu      sync.Mutex
	tracker clienttesting.ObjectTracker
	last    int
}

func (o *optimistic) number(c *v1alpha1.Cluster) {
	o.last++
	c.ResourceVersion = strconv.Itoa(o.last)
}

func (o *optimistic) create(a clienttesting.Action) (bool, runtime.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := a.(clienttesting.CreateAction).GetObject().DeepCopyObject().(*v1alpha1.Cluster)
	o.number(c)
	return true, c, o.tracker.Create(a.GetResource(), c, "")
}

func (o *optimistic) update(a clienttesting.Action) (bool, runtime.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := a.(clienttesting.UpdateAction).GetObject().DeepCopyObject().(*v1alpha1.Cluster)
	stored, err := o.tracker.Get(a.GetResource(), "", c.Name)
	if err != nil {
		return true, nil, err
	}
	present := stored.(*v1alpha1.Cluster).DeepCopy()
	if c.ResourceVersion != "" && c.ResourceVersion != present.ResourceVersion {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), c.Name, errors.New("it has changed"))
	}
	if a.GetSubresource() == "status" {
		present.Status = c.Status
		c = present
	} else {
		c.Status = present.Status
	}
	o.number(c)
	return true, c, o.tracker.Update(a.GetResource(), c, "")
}

// unstreamed says that the watches of a tracker do not begin with its objects.
type unstreamed struct{ client.Clusters }

// IsWatchListSemanticsUnSupported is asked by reflectors.
func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// playedFleet is a running Controller over played Clusters.
type playedFleet struct {
	*Controller
	t *testing.T
}

const selfUID = "uid-control-plane"

func playFleet(t *testing.T, change func(*Options)) *playedFleet {
	t.Helper()
	kube := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: selfUID}})
	mdScheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(mdScheme); err != nil {
		t.Fatal(err)
	}
	opts := Options{
		Timing:     Timing{Probe: 20 * time.Millisecond, ProbeTimeout: time.Second, Discovery: time.Hour, Summary: time.Hour},
		Thresholds: Thresholds{Failure: 60 * time.Millisecond, Success: 60 * time.Millisecond},
		Leads:      func() bool { return true },
	}
	if change != nil {
		change(&opts)
	}
	c, err := newController(opts, playedClusters(t), kube, metadatafake.NewSimpleMetadataClient(mdScheme))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := c.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &playedFleet{c, t}
}

// add creates a Cluster and its Secret.
func (f *playedFleet) add(name string, m *playedMember, token string, change func(*v1alpha1.Cluster, *corev1.Secret)) {
	f.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.CredentialsNamespace},
		Data:       map[string][]byte{"token": []byte(token), "caBundle": m.ca()},
	}
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cluster.Spec.APIEndpoint = m.server.URL
	cluster.Spec.SecretRef = &v1alpha1.LocalSecretReference{Namespace: v1alpha1.CredentialsNamespace, Name: name}
	if change != nil {
		change(cluster, secret)
	}
	if _, err := f.kube.CoreV1().Secrets(secret.Namespace).Create(f.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.clusters.Create(f.t.Context(), cluster, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *playedFleet) get(name string) *v1alpha1.Cluster {
	f.t.Helper()
	c, err := f.clusters.Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// condition is "Status Reason" of a condition, "" when there is none.
func (f *playedFleet) condition(name, typ string) string {
	for _, c := range f.get(name).Status.Conditions {
		if c.Type == typ {
			return fmt.Sprintf("%s %s", c.Status, c.Reason)
		}
	}
	return ""
}

func (f *playedFleet) eventually(what string, fn func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !fn() {
		if time.Now().After(deadline) {
			f.t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
