package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/fence"
)

// memberFence is the mark of one member.
type memberFence struct {
	// ours: the member holds a mark of this term, and nothing has been seen
	// that says otherwise.
	ours atomic.Bool
	// covers is the revision of the control plane up to which the mark counts.
	covers atomic.Uint64

	mu      sync.Mutex // held while the mark is read or written
	known   bool       // mark and version are the member's
	mark    *fence.Mark
	version string
}

// allows a write that is based on such a revision.
func (f *memberFence) allows(needed uint64) bool { return f.ours.Load() && f.covers.Load() >= needed }

// permit is asked before every write to the member. needed is the newest
// revision of the control plane that the write is based on.
func (m *member) permit(ctx context.Context, needed uint64) error {
	f := m.engine.fence
	if err := f.mayWrite(); err != nil {
		return m.refused(err)
	}
	if m.fence.allows(needed) {
		return nil
	}
	m.fence.mu.Lock()
	defer m.fence.mu.Unlock()
	if m.fence.allows(needed) {
		return nil
	}
	if !m.fence.ours.Load() {
		m.fence.known = false
	}
	if !m.fence.known {
		if err := m.checkFence(ctx); err != nil {
			return m.refused(err)
		}
	}
	mark, covers, err := f.raise(ctx, needed)
	if err != nil {
		return m.refused(err)
	}
	if err := m.writeMark(ctx, mark); err != nil {
		return m.refused(err)
	}
	m.fence.covers.Store(covers)
	m.fence.ours.Store(true)
	return nil
}

// refused counts a refusal.
func (m *member) refused(err error) error {
	refusals.WithLabelValues(m.name).Inc()
	return err
}

// checkFence reads the member's mark and decides; the fence's mu is held.
func (m *member) checkFence(ctx context.Context) error {
	m.fence.ours.Store(false)
	mark, version, err := m.readMark(ctx)
	if err != nil {
		return err
	}
	verdict, why, err := m.engine.fence.decide(ctx, m.name, mark)
	if err != nil {
		return err
	}
	m.engine.showFence(ctx, m, verdict, why, mark)
	switch verdict {
	case fence.Behind:
		m.engine.fence.block(ctx, m.name, why)
		return fmt.Errorf("%w: %s: %s", errBehind, m.name, why)
	case fence.Foreign:
		return fmt.Errorf("%w: %s", errForeignHub, why)
	case fence.Pass, fence.Claim:
	}
	m.fence.known, m.fence.mark, m.fence.version = true, mark, version
	return nil
}

func (m *member) marks() dynamic.ResourceInterface {
	return m.client.Resource(configMaps).Namespace(clusterv1alpha1.MemberNamespace)
}

// readMark asks the member; nil when it holds none.
func (m *member) readMark(ctx context.Context) (*fence.Mark, string, error) {
	if m.client == nil {
		return nil, "", errors.New("there are no credentials for the cluster")
	}
	ctx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := m.marks().Get(ctx, FenceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the fence in %s: %w", m.name, err)
	}
	mark, err := decodeFence[fence.Mark](u)
	if err != nil {
		// Somebody's hand was in it: nobody can be ruled out.
		return &fence.Mark{}, u.GetResourceVersion(), nil //nolint:nilerr // an unreadable mark is a foreign one
	}
	return &mark, u.GetResourceVersion(), nil
}

// writeMark replaces the mark that was decided about.
func (m *member) writeMark(ctx context.Context, mark fence.Mark) error {
	ctx, cancel := context.WithTimeout(fencing(ctx), m.engine.cfg.RequestTimeout)
	defer cancel()
	got, err := writeFence(ctx, m.marks(), clusterv1alpha1.MemberNamespace, mark, m.fence.version)
	if apierrors.IsNotFound(err) && m.fence.version == "" {
		// A member that was not joined by the command has no such namespace.
		if err := m.createNamespace(ctx); err != nil {
			return err
		}
		got, err = writeFence(ctx, m.marks(), clusterv1alpha1.MemberNamespace, mark, "")
	}
	if err != nil {
		// Taken by another, or the answer is lost: look again.
		m.fence.known = false
		m.fence.ours.Store(false)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			m.engine.showRefusal(ctx, m, "FenceNotWritable", err.Error())
		}
		return fmt.Errorf("%w: %s: %w", errNoFence, m.name, err)
	}
	if m.fence.mark == nil || m.fence.mark.Term != mark.Term {
		m.engine.showFence(ctx, m, fence.Pass, "this leader writes to the cluster", &mark)
	}
	m.fence.known, m.fence.mark, m.fence.version = true, &mark, got.GetResourceVersion()
	return nil
}

func (m *member) createNamespace(ctx context.Context) error {
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(clusterv1alpha1.MemberNamespace)
	ns.SetLabels(map[string]string{clusterv1alpha1.IdentityLabel: "shared"})
	_, err := m.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Create(ctx, ns, metav1.CreateOptions{FieldManager: fenceManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %s: namespace %s: %w", errNoFence, m.name, clusterv1alpha1.MemberNamespace, err)
	}
	return nil
}

// watchFence looks for marks that are not ours.
func (m *member) watchFence(ctx context.Context) {
	informer := m.newInformer(m.marks(), func(o *metav1.ListOptions) {
		o.FieldSelector = "metadata.name=" + FenceName
	})
	seen := func(obj any) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		mark, err := decodeFence[fence.Mark](u)
		if err == nil && m.engine.fence.isOurs(mark) {
			return
		}
		if m.fence.ours.Swap(false) {
			klog.FromContext(ctx).Info("The fence was changed by somebody else", "mark", mark, "err", err)
		}
		m.wg.Go(func() { m.recheck(m.ctx) })
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, obj any) { seen(obj) },
		DeleteFunc: func(any) { m.fence.ours.Store(false) },
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "The fence cannot be watched")
		return
	}
	informer.Run(ctx.Done())
}

// recheck decides anew, so that a refusal does not wait for the next write.
func (m *member) recheck(ctx context.Context) {
	if !m.engine.fence.checked.Load() {
		return
	}
	m.fence.mu.Lock()
	defer m.fence.mu.Unlock()
	if m.fence.ours.Load() {
		return
	}
	if err := m.checkFence(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("The fence was not passed", "err", err)
	}
}

// isOurs: written in this term or before, as far as the term goes.
func (f *fenceKeeper) isOurs(mark fence.Mark) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, _ := fence.Decide(f.record, f.engine.id, "", &mark)
	return v == fence.Pass
}

type fencingKey struct{}

// fencing marks the writes that set up the fence itself.
func fencing(ctx context.Context) context.Context {
	return context.WithValue(ctx, fencingKey{}, true)
}

// guard is the last gate before the network: whatever asks for it, no write
// leaves this process unless it leads and the member holds its mark.
type guard struct {
	m    *member
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return g.next.RoundTrip(r)
	}
	err := g.m.engine.fence.mayWrite()
	if err == nil && !g.m.fence.ours.Load() && r.Context().Value(fencingKey{}) == nil {
		err = errNotOurs
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, g.m.refused(err)
	}
	// The member's audit log shows which term a write belongs to.
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", fmt.Sprintf("isthmus-engine epoch/%d", g.m.engine.fence.epoch.Load()))
	return g.next.RoundTrip(r)
}

var errNotOurs = errors.New("the cluster does not hold this leader's mark")

// greet gives a member that has come, or come back, this term's mark.
func (m *member) greet(ctx context.Context) {
	if err := m.permit(ctx, 0); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("The fence was not passed", "err", err)
	}
}
