package soak

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
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
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{world.etcd.URL()}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	i := &intents{of: map[string]judge.Key{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait(); _ = client.Close() })
	wg.Go(func() { i.follow(ctx, t, client, ns) })
	return i
}

func (i *intents) follow(ctx context.Context, t testing.TB, client *clientv3.Client, ns string) {
	next := int64(0)
	for ctx.Err() == nil {
		options := []clientv3.OpOption{clientv3.WithPrefix()}
		if next > 0 {
			options = append(options, clientv3.WithRev(next))
		}
		// The client resumes by itself while the store is away.
		for answer := range client.Watch(clientv3.WithRequireLeader(ctx), bindingsPrefix+ns+"/", options...) {
			if answer.CompactRevision > 0 {
				t.Errorf("the store has compacted what was not read yet: revision %d", answer.CompactRevision)
				return
			}
			for _, e := range answer.Events {
				next = e.Kv.ModRevision + 1
				if err := i.add(e); err != nil {
					t.Errorf("a binding in the store: %v", err)
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
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

func (i *intents) add(e *clientv3.Event) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := judge.Record{Gone: true, At: time.Now()}
	if e.Type == clientv3.EventTypeDelete {
		r.Key = i.of[string(e.Kv.Key)]
		for _, before := range i.records {
			if before.Key == r.Key {
				r.UID = before.UID
			}
		}
		i.records = append(i.records, r)
		return nil
	}
	var b binding
	if err := json.Unmarshal(e.Kv.Value, &b); err != nil {
		return err
	}
	r.Key, r.UID = judge.Key{Kind: b.Spec.Resource.Kind, Name: b.Spec.Resource.Name}, b.Spec.Resource.UID
	r.Gone = b.Metadata.Annotations["isthmus.dev/deleted-template"] != ""
	for _, c := range b.Spec.Clusters {
		r.Clusters = append(r.Clusters, c.Name)
	}
	i.of[string(e.Kv.Key)] = r.Key
	i.records = append(i.records, r)
	return nil
}

func (i *intents) all() []judge.Record {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.records)
}
