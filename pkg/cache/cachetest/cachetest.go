// Package cachetest holds what judges a cache.Collection: the promises to a
// reader as functions that name the one that is broken, and a naive informer.
//
//	Collection -> Check (a snapshot is well-formed)
//	           -> Mirror (a watcher ends with what a snapshot holds)
package cachetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Broken promises.
var (
	ErrOrder    = errors.New("snapshot is not in key order or repeats a key")
	ErrBytes    = errors.New("object and its bytes disagree")
	ErrRV       = errors.New("resourceVersions do not grow")
	ErrSequence = errors.New("event does not fit the state before it")
	ErrContent  = errors.New("contents differ")
)

// Content is what a snapshot holds: bytes by key.
type Content map[cache.Key]string

// Read copies a snapshot and checks that it is well-formed.
func Read(res cache.Resource, snap cache.Snapshot) (Content, error) {
	content := Content{}
	var last *cache.Object
	var err error
	snap.Ascend(cache.Key{}, func(o *cache.Object) bool {
		if last != nil && last.Key.Compare(o.Key) >= 0 {
			err = fmt.Errorf("%w: %s after %s", ErrOrder, o.Key, last.Key)
		} else if o.RV > snap.RV() {
			err = fmt.Errorf("%w: %s at %d in a snapshot of %d", ErrRV, o.Key, o.RV, snap.RV())
		} else {
			err = CheckObject(res, o)
		}
		last = o
		content[o.Key] = string(o.Raw())
		return err == nil
	})
	if err == nil && snap.Len() != len(content) {
		err = fmt.Errorf("%w: Len is %d of %d", ErrOrder, snap.Len(), len(content))
	}
	return content, err
}

// CheckObject compares an object with its bytes.
func CheckObject(res cache.Resource, o *cache.Object) error {
	m, err := wire.ParseMeta(res.Encoding, o.Raw())
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBytes, o.Key, err)
	}
	if m.Namespace != o.Key.Namespace || m.Name != o.Key.Name || m.UID != string(o.UID) || m.ResourceVersion != strconv.FormatUint(o.RV, 10) {
		return fmt.Errorf("%w: %s at %d is %+v", ErrBytes, o.Key, o.RV, m)
	}
	original, renamed := m.Annotation(cache.OriginalNameAnnotation)
	if renamed != (o.SourceName != o.Key.Name) || renamed && original != o.SourceName {
		return fmt.Errorf("%w: %s of %s has original name %q", ErrBytes, o.Key, o.SourceName, original)
	}
	if cluster, ok := m.Label(cache.ClusterLabel); ok != (o.Cluster != cache.ControlPlane) || cluster != string(o.Cluster) {
		return fmt.Errorf("%w: %s of %q is labelled %q", ErrBytes, o.Key, o.Cluster, cluster)
	}
	for _, p := range m.Labels {
		if o.Labels.Get(p.Key) != p.Value {
			return fmt.Errorf("%w: %s has label %s=%s, not %q", ErrBytes, o.Key, p.Key, p.Value, o.Labels.Get(p.Key))
		}
	}
	return nil
}

// Mirror is an informer: a state and the events that change it.
type Mirror struct {
	res     cache.Resource
	watcher cache.Watcher
	content Content
	rv      uint64
}

// NewMirror starts from a snapshot and watches from its RV.
func NewMirror(ctx context.Context, col cache.Collection, snap cache.Snapshot) (*Mirror, error) {
	content, err := Read(col.Resource(), snap)
	if err != nil {
		return nil, err
	}
	w, err := col.Watch(ctx, snap.RV())
	if err != nil {
		return nil, err
	}
	return &Mirror{res: col.Resource(), watcher: w, content: content, rv: snap.RV()}, nil
}

// CatchUp reads events until the mirror has reached an RV.
func (m *Mirror) CatchUp(ctx context.Context, rv uint64) error {
	for m.rv < rv {
		events, err := m.watcher.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := m.apply(e); err != nil {
				return err
			}
		}
		if p := m.watcher.Progress(); p != m.rv {
			return fmt.Errorf("%w: progress is %d after event %d", ErrRV, p, m.rv)
		}
	}
	return nil
}

func (m *Mirror) apply(e *cache.Event) error {
	if e.RV <= m.rv || e.Object.RV != e.RV {
		return fmt.Errorf("%w: event %d of object %d after %d", ErrRV, e.RV, e.Object.RV, m.rv)
	}
	if err := CheckObject(m.res, e.Object); err != nil {
		return err
	}
	m.rv = e.RV
	key := e.Object.Key
	before, there := m.content[key]
	if there != (e.Type != cache.Added) || there != (e.Prev != nil) || there && string(e.Prev.Raw()) != before {
		return fmt.Errorf("%w: event %d of type %d of %s", ErrSequence, e.RV, e.Type, key)
	}
	if e.Type == cache.Deleted {
		delete(m.content, key)
	} else {
		m.content[key] = string(e.Object.Raw())
	}
	return nil
}

// Equal compares the mirror with the content of a snapshot.
func (m *Mirror) Equal(want Content) error {
	return Same(m.content, want)
}

// Same compares two contents.
func Same(got, want Content) error {
	if maps.Equal(got, want) {
		return nil
	}
	for k, v := range want {
		if got[k] != v {
			return fmt.Errorf("%w: %s is %q, not %q", ErrContent, k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			return fmt.Errorf("%w: %s should not be there: %q", ErrContent, k, v)
		}
	}
	return nil
}
