package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/soak/judge"
)

const bindingsPrefix = "/registry/work.karmada.io/resourcebindings/"

// intents are the placements as the store records them, one after the other.
type intents struct {
	mu      sync.Mutex
	records []judge.Record
	of      map[string]judge.Key // by the binding's key in the store
}

// followIntents reads every revision of the bindings from the store itself until
// the end of the test, past all that is to be judged by them.
func followIntents(t testing.TB, ns string) *intents {
	t.Helper()
	i := &intents{of: map[string]judge.Key{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		for next := int64(1); ctx.Err() == nil; {
			var err error
			if next, err = i.follow(ctx, bindingsPrefix+ns+"/", next); err != nil && ctx.Err() == nil {
				t.Errorf("bindings in the store: %v", err)
				return
			}
			time.Sleep(200 * time.Millisecond) // the store is away
		}
	})
	return i
}

// watched is a message of etcd's watch in JSON.
type watched struct {
	Result struct {
		CompactRevision int64 `json:"compact_revision,string"`
		Events          []struct {
			Type string `json:"type"` // empty: a PUT
			KV   struct {
				Key         []byte `json:"key"`
				Value       []byte `json:"value"`
				ModRevision int64  `json:"mod_revision,string"`
			} `json:"kv"`
		} `json:"events"`
	} `json:"result"`
}

// follow reads from a revision on and returns where to go on when the store
// ends the stream.
func (i *intents) follow(ctx context.Context, prefix string, from int64) (next int64, err error) {
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	request, err := json.Marshal(map[string]any{"create_request": map[string]any{"key": []byte(prefix), "range_end": []byte(end), "start_revision": from}})
	if err != nil {
		return from, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, world.etcd.URL()+"/v3/watch", bytes.NewReader(request))
	if err != nil {
		return from, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return from, nil //nolint:nilerr // it is tried again
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	for decoder := json.NewDecoder(resp.Body); ; {
		var w watched
		if decoder.Decode(&w) != nil {
			return from, nil
		}
		if w.Result.CompactRevision > 0 {
			return from, fmt.Errorf("revision %d is compacted and was not read", from)
		}
		for _, e := range w.Result.Events {
			from = e.KV.ModRevision + 1
			if err := i.add(string(e.KV.Key), e.KV.Value, e.Type == "DELETE"); err != nil {
				return from, err
			}
		}
	}
}

// binding is what is read of a ResourceBinding.
type binding struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Resource struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"resource"`
		Clusters []struct {
			Name string `json:"name"`
		} `json:"clusters"`
	} `json:"spec"`
}

func (i *intents) add(stored string, value []byte, deleted bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := judge.Record{Gone: true, At: time.Now()}
	if deleted {
		r.Key = i.of[stored]
		for _, before := range i.records {
			if before.Key == r.Key {
				r.UID = before.UID
			}
		}
		i.records = append(i.records, r)
		return nil
	}
	var b binding
	if err := json.Unmarshal(value, &b); err != nil {
		return err
	}
	r.Key, r.UID = judge.Key{Kind: b.Spec.Resource.Kind, Name: b.Spec.Resource.Name}, b.Spec.Resource.UID
	r.Gone = b.Metadata.Annotations["isthmus.dev/deleted-template"] != ""
	for _, c := range b.Spec.Clusters {
		r.Clusters = append(r.Clusters, c.Name)
	}
	i.of[stored] = r.Key
	i.records = append(i.records, r)
	return nil
}

func (i *intents) all() []judge.Record {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.records)
}
