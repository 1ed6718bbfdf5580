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

// ConfigMap keeps the number in a ConfigMap of the control plane.
type ConfigMap struct {
	Client          kubernetes.Interface
	Namespace, Name string
}

const dataKey = "reserved"

// Load implements sequence.Reservation.
func (c ConfigMap) Load(ctx context.Context) (uint64, error) {
	cm, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the reservation: %w", err)
	}
	return parse(cm)
}

func parse(cm *corev1.ConfigMap) (uint64, error) {
	if cm.Data[dataKey] == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(cm.Data[dataKey], 10, 63)
	if err != nil {
		return 0, fmt.Errorf("ConfigMap %s/%s holds no number: %w", cm.Namespace, cm.Name, err)
	}
	return n, nil
}

// Store implements sequence.Reservation.
func (c ConfigMap) Store(ctx context.Context, upTo uint64) error {
	for {
		err := c.store(ctx, upTo)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

func (c ConfigMap) store(ctx context.Context, upTo uint64) error {
	client := c.Client.CoreV1().ConfigMaps(c.Namespace)
	cm, err := client.Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
		cm.Data = map[string]string{dataKey: strconv.FormatUint(upTo, 10)}
		_, err = client.Create(ctx, cm, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return fmt.Errorf("read the reservation: %w", err)
	}
	present, err := parse(cm)
	if err != nil || present >= upTo {
		return err
	}
	cm.Data = map[string]string{dataKey: strconv.FormatUint(upTo, 10)}
	_, err = client.Update(ctx, cm, metav1.UpdateOptions{})
	return err
}
