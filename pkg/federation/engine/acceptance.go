package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/fence"
)

// AcceptanceName is the ConfigMap in which an operator says that the members
// may be written to although they hold more than this control plane knows.
const AcceptanceName = "isthmus-restore"

// AcceptanceKey is its key.
const AcceptanceKey = "accept"

// Acceptance is what an operator has said.
type Acceptance struct {
	ID string      `json:"id"`
	By string      `json:"by,omitempty"`
	At metav1.Time `json:"at"`
	// TakeOver names clusters that are taken from another control plane.
	TakeOver []string `json:"takeOver,omitempty"`
}

const acceptancePause = 2 * time.Second

// awaitAcceptances looks for acceptances while something is refused.
func (f *fenceKeeper) awaitAcceptances(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(acceptancePause):
		}
		if f.blocked.Load() == nil && !f.refusesAny() {
			continue
		}
		a, err := f.acceptance(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Acceptances cannot be read")
			continue
		}
		if a.ID == "" || a.ID == f.lastAccepted() {
			continue
		}
		if err := f.accept(ctx, a); err != nil {
			klog.FromContext(ctx).Error(err, "The acceptance cannot be carried out yet")
			continue
		}
		f.resume(ctx, a)
	}
}

func (f *fenceKeeper) refusesAny() bool {
	return slices.ContainsFunc(f.engine.memberList(), func(m *member) bool {
		return m.client != nil && m.info().Ready && !m.fence.ours.Load()
	})
}

func (f *fenceKeeper) lastAccepted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record.Accepted
}

func (f *fenceKeeper) acceptance(ctx context.Context) (Acceptance, error) {
	ctx, cancel := context.WithTimeout(ctx, f.engine.cfg.RequestTimeout)
	defer cancel()
	var a Acceptance
	u, err := f.engine.client.Resource(configMaps).Namespace(clusterv1alpha1.CredentialsNamespace).Get(ctx, AcceptanceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return a, nil
	}
	if err != nil {
		return a, fmt.Errorf("ConfigMap %s: %w", AcceptanceName, err)
	}
	text, _, err := unstructured.NestedString(u.Object, "data", AcceptanceKey)
	if err != nil || text == "" {
		return a, err
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("ConfigMap %s: %w", AcceptanceName, err)
	}
	return a, nil
}

// resume goes on after an acceptance: every member is asked and decided anew.
func (f *fenceKeeper) resume(ctx context.Context, a Acceptance) {
	f.blocked.Store(nil)
	for _, m := range f.engine.memberList() {
		m.fence.ours.Store(false)
		if slices.Contains(a.TakeOver, m.name) {
			if err := f.takeOver(ctx, m); err != nil {
				klog.FromContext(ctx).Error(err, "The cluster cannot be taken over", "cluster", m.name)
			}
		}
	}
	f.checkAll(ctx)
	f.engine.enqueueAll()
}

// takeOver replaces the mark of another control plane.
func (f *fenceKeeper) takeOver(ctx context.Context, m *member) error {
	m.fence.mu.Lock()
	defer m.fence.mu.Unlock()
	mark, version, err := m.readMark(ctx)
	if err != nil || mark == nil {
		return err
	}
	if verdict, _, err := f.decide(ctx, m.name, mark); err != nil || verdict != fence.Foreign {
		return err
	}
	m.fence.version = version
	ours, covers, err := f.raise(ctx, 0)
	if err != nil {
		return err
	}
	if err := m.writeMark(ctx, ours); err != nil {
		return err
	}
	m.fence.covers.Store(covers)
	m.fence.ours.Store(true)
	return nil
}
