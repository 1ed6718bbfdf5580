package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/fence"
)

// FenceName is the ConfigMap of the fence, here and in each member.
const FenceName = clusterv1alpha1.FenceName

// FenceStatusName is the ConfigMap in the control plane that shows what was
// found in each member, under the cluster's name.
const FenceStatusName = "isthmus-fence-status"

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// raisePause is the least time between two raises: what changes meanwhile is
// covered by one.
const raisePause = 250 * time.Millisecond

var (
	errNotChecked = errors.New("the members' fences have not been read yet")
	errBehind     = errors.New("writes to all members are stopped: this control plane is behind what a member holds (multicluster-apiserver restore status)")
	errForeignHub = errors.New("another control plane writes to the cluster (multicluster-apiserver restore status)")
	errSuperseded = errors.New("a later leader has begun its term, this one writes no more")
	errNoFence    = errors.New("the fence in the cluster cannot be written")
)

// fenceKeeper keeps this leader's record in the control plane, and says whether
// anything may be written at all.
type fenceKeeper struct {
	engine  *Engine
	checked atomic.Bool            // the members have been asked once
	blocked atomic.Pointer[string] // why nothing may be written
	over    chan error             // a later leader was seen
	epoch   atomic.Int64

	mu       sync.Mutex // held while the record is written
	record   fence.Record
	version  string
	covers   uint64 // revision of the control plane that the step covers
	raisedAt time.Time
}

func newFenceKeeper(e *Engine) *fenceKeeper {
	return &fenceKeeper{engine: e, over: make(chan error, 1)}
}

func (f *fenceKeeper) records() dynamic.ResourceInterface {
	return f.engine.client.Resource(configMaps).Namespace(clusterv1alpha1.CredentialsNamespace)
}

// mayWrite says whether this process may write to members at this moment.
func (f *fenceKeeper) mayWrite() error {
	if err := f.engine.cfg.mayWrite(); err != nil {
		return err
	}
	if !f.checked.Load() {
		return errNotChecked
	}
	if why := f.blocked.Load(); why != nil {
		return fmt.Errorf("%w: %s", errBehind, *why)
	}
	return nil
}

// open begins this leader's term, after all caches are full: its record covers
// what they hold.
func (f *fenceKeeper) open(ctx context.Context) error {
	return retryUntil(ctx, "begin the leader's term", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := f.load(ctx); err != nil {
			return err
		}
		if err := f.store(ctx, f.record.Open(string(uuid.NewUUID()))); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("The term begins", "epoch", f.record.Epoch, "term", f.record.Term)
		return nil
	})
}

// load reads the record; mu is held.
func (f *fenceKeeper) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := f.records().Get(ctx, FenceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		f.record, f.version = fence.Record{}, ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the fence's record: %w", err)
	}
	r, err := decodeFence[fence.Record](u)
	if err != nil {
		return err
	}
	f.record, f.version = r, u.GetResourceVersion()
	return nil
}

// store writes the record unless somebody else has; mu is held.
func (f *fenceKeeper) store(ctx context.Context, next fence.Record) error {
	ctx, cancel := context.WithTimeout(ctx, f.engine.cfg.RequestTimeout)
	defer cancel()
	got, err := writeFence(ctx, f.records(), clusterv1alpha1.CredentialsNamespace, next, f.version)
	if err != nil {
		return fmt.Errorf("write the fence's record: %w", err)
	}
	writes.WithLabelValues("fence").Inc()
	f.record, f.version, f.raisedAt = next, got.GetResourceVersion(), time.Now()
	f.covers = revisionOf(got.GetResourceVersion())
	f.epoch.Store(next.Epoch)
	return nil
}

// raise makes the record cover a revision of the control plane.
func (f *fenceKeeper) raise(ctx context.Context, needed uint64) (fence.Mark, uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.covers < needed {
		if wait := raisePause - time.Since(f.raisedAt); wait > 0 {
			select {
			case <-ctx.Done():
				return fence.Mark{}, 0, ctx.Err()
			case <-time.After(wait):
			}
		}
		if err := f.step(ctx); err != nil {
			return fence.Mark{}, 0, err
		}
	}
	return f.record.Mark(f.engine.id, f.covers), f.covers, nil
}

// step writes the next step of the term. A conflict tells of a later leader, or
// of our own write whose answer was lost.
func (f *fenceKeeper) step(ctx context.Context) error {
	err := f.store(ctx, f.record.Raise())
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return err
	}
	term := f.record.Term
	if err := f.load(ctx); err != nil {
		return err
	}
	if f.record.Term != term {
		return f.superseded()
	}
	return f.store(ctx, f.record.Raise())
}

// superseded ends this leader; mu is held or not needed.
func (f *fenceKeeper) superseded() error {
	select {
	case f.over <- errSuperseded:
	default:
	}
	return errSuperseded
}

// decide about a mark. Before a control plane takes itself to be restored, it
// looks whether it is merely an old leader.
func (f *fenceKeeper) decide(ctx context.Context, cluster string, mark *fence.Mark) (fence.Verdict, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	verdict, why := fence.Decide(f.record, f.engine.id, cluster, mark)
	if verdict != fence.Behind {
		return verdict, why, nil
	}
	term := f.record.Term
	if err := f.load(ctx); err != nil {
		return verdict, why, err
	}
	if f.record.Term != term {
		return verdict, why, f.superseded()
	}
	return verdict, why, nil
}

// block stops all writes to all members.
func (f *fenceKeeper) block(ctx context.Context, cluster, why string) {
	text := cluster + ": " + why
	if f.blocked.Swap(&text) == nil {
		klog.FromContext(ctx).Info("Writes to all members are stopped", "cluster", cluster, "why", why)
	}
}

// checkAll asks every member that can be reached, before anything is written.
// If none objects, all are given this term's mark.
func (f *fenceKeeper) checkAll(ctx context.Context) {
	f.everyMember(func(m *member) error {
		m.fence.mu.Lock()
		defer m.fence.mu.Unlock()
		return m.checkFence(ctx)
	})
	f.checked.Store(true)
	if f.blocked.Load() == nil {
		f.everyMember(func(m *member) error { return m.permit(ctx, 0) })
	}
}

// everyMember does something with all that can be reached, at once.
func (f *fenceKeeper) everyMember(do func(*member) error) {
	var wg sync.WaitGroup
	for _, m := range f.engine.memberList() {
		if m.client == nil || !m.info().Ready {
			continue
		}
		wg.Go(func() {
			if err := do(m); err != nil {
				klog.FromContext(m.ctx).Info("The fence was not passed", "err", err)
			}
		})
	}
	wg.Wait()
}

func revisionOf(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// latest is the highest of some resourceVersions of the control plane.
func latest(versions ...string) uint64 {
	var out uint64
	for _, v := range versions {
		out = max(out, revisionOf(v))
	}
	return out
}

func decodeFence[T fence.Mark | fence.Record](u *unstructured.Unstructured) (T, error) {
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		var zero T
		return zero, fmt.Errorf("ConfigMap %s: %w", u.GetName(), err)
	}
	return fence.Decode[T](data)
}

// writeFence creates the ConfigMap, or replaces the very version that was read.
func writeFence[T fence.Mark | fence.Record](ctx context.Context, in dynamic.ResourceInterface, namespace string, v T, version string) (*unstructured.Unstructured, error) {
	data, err := fence.Encode(v)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	u.SetNamespace(namespace)
	u.SetName(FenceName)
	if err := unstructured.SetNestedStringMap(u.Object, data, "data"); err != nil {
		return nil, err
	}
	if version == "" {
		return in.Create(ctx, u, metav1.CreateOptions{FieldManager: fenceManager})
	}
	u.SetResourceVersion(version)
	return in.Update(ctx, u, metav1.UpdateOptions{FieldManager: fenceManager})
}

const fenceManager = "isthmus-fence"

// accept carries out an operator's acceptance.
func (f *fenceKeeper) accept(ctx context.Context, a Acceptance) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.record.Accepted == a.ID {
		return nil
	}
	var seen []fence.Mark
	var awaited []string
	for _, m := range f.engine.memberList() {
		if !m.info().Ready {
			awaited = append(awaited, m.name)
			continue
		}
		mark, _, err := m.readMark(ctx)
		switch {
		case err != nil:
			awaited = append(awaited, m.name)
		case mark != nil && (mark.ControlPlane == f.engine.id || slices.Contains(a.TakeOver, m.name)):
			seen = append(seen, *mark)
		}
	}
	next := f.record.Accept(a.ID, string(uuid.NewUUID()), seen, awaited, time.Now().Unix())
	if err := f.store(ctx, next); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("What the members hold was accepted, the term begins anew", "by", a.By, "epoch", next.Epoch, "awaited", awaited)
	return nil
}
