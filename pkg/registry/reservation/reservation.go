// Package reservation stores how far resourceVersions have been reserved, in
// the control plane's etcd or through its API, so that neither a lost disk nor
// a clock set back can reuse a number.
//
// Both stores only grow: a writer that is behind changes nothing.
package reservation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const timeout = 5 * time.Second

// Etcd keeps the number under a key of etcd.
type Etcd struct {
	Client *clientv3.Client
	Key    string
}

// Load implements sequence.Reservation.
func (e Etcd) Load(ctx context.Context) (uint64, error) {
	n, _, err := e.get(ctx)
	return n, err
}

func (e Etcd) get(ctx context.Context) (number uint64, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := e.Client.Get(ctx, e.Key)
	if err != nil {
		return 0, 0, fmt.Errorf("read the reservation %s: %w", e.Key, err)
	}
	if len(answer.Kvs) == 0 {
		return 0, 0, nil
	}
	n, err := strconv.ParseUint(string(answer.Kvs[0].Value), 10, 63)
	if err != nil {
		return 0, 0, fmt.Errorf("the reservation %s holds no number: %w", e.Key, err)
	}
	return n, answer.Kvs[0].ModRevision, nil
}

// Store implements sequence.Reservation.
func (e Etcd) Store(ctx context.Context, upTo uint64) error {
	for {
		present, revision, err := e.get(ctx)
		if err != nil {
			return err
		}
		if present >= upTo {
			return nil
		}
		done, err := e.swap(ctx, revision, upTo)
		if err != nil || done {
			return err
		}
	}
}

func (e Etcd) swap(ctx context.Context, revision int64, upTo uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := e.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(e.Key), "=", revision)).
		Then(clientv3.OpPut(e.Key, strconv.FormatUint(upTo, 10))).Commit()
	if err != nil {
		return false, fmt.Errorf("write the reservation %s: %w", e.Key, err)
	}
	return answer.Succeeded, nil
}

// ErrDeposed is wrapped where a later holder of the Lease has taken over the
// numbers: nothing is reserved for this one any more.
var ErrDeposed = errors.New("a later sequencer has taken over the resourceVersions")

// ConfigMap keeps the number in a ConfigMap of the control plane.
type ConfigMap struct {
	Client          kubernetes.Interface
	Namespace, Name string
	// Epoch of the holder of the Lease; 0 where there is no Lease. Load claims
	// the number for it: from then on holders of earlier epochs reserve nothing.
	Epoch uint64
}

const (
	dataKey  = "reserved"
	epochKey = "epoch"
)

// Load implements sequence.Reservation.
func (c ConfigMap) Load(ctx context.Context) (uint64, error) {
	return c.change(ctx, 0)
}

// Store implements sequence.Reservation.
func (c ConfigMap) Store(ctx context.Context, upTo uint64) error {
	_, err := c.change(ctx, upTo)
	return err
}

// change moves the number and the epoch forward, and gives the number as it was.
func (c ConfigMap) change(ctx context.Context, upTo uint64) (uint64, error) {
	for {
		before, err := c.tryChange(ctx, upTo)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return before, err
		}
		if ctx.Err() != nil {
			return 0, errors.Join(err, ctx.Err())
		}
	}
}

func (c ConfigMap) tryChange(ctx context.Context, upTo uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := c.Client.CoreV1().ConfigMaps(c.Namespace)
	cm, err := client.Get(ctx, c.Name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if missing {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	} else if err != nil {
		return 0, fmt.Errorf("read the reservation: %w", err)
	}
	before, err := parse(cm, dataKey)
	if err != nil {
		return 0, err
	}
	epoch, err := parse(cm, epochKey)
	switch {
	case err != nil:
		return 0, err
	case epoch > c.Epoch && c.Epoch > 0:
		return 0, fmt.Errorf("%w: of epoch %d, this one is of %d", ErrDeposed, epoch, c.Epoch)
	case before >= upTo && epoch >= c.Epoch:
		return before, nil
	}
	cm.Data = map[string]string{dataKey: strconv.FormatUint(max(before, upTo), 10)}
	if epoch = max(epoch, c.Epoch); epoch > 0 {
		cm.Data[epochKey] = strconv.FormatUint(epoch, 10)
	}
	if missing {
		_, err = client.Create(ctx, cm, metav1.CreateOptions{})
	} else {
		_, err = client.Update(ctx, cm, metav1.UpdateOptions{})
	}
	return before, err
}

func parse(cm *corev1.ConfigMap, key string) (uint64, error) {
	if cm.Data[key] == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(cm.Data[key], 10, 63)
	if err != nil {
		return 0, fmt.Errorf("ConfigMap %s/%s holds no number: %w", cm.Namespace, cm.Name, err)
	}
	return n, nil
}
