package app

import (
	"crypto/tls"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/registry/reservation"
)

// reservationKey lies outside the prefix of the control plane's own objects.
const reservationKey = "/isthmus/sequence/reserved"

// reservations opens the store of reserved resourceVersions in the control
// plane's etcd, which is there before the API is.
func (o *Options) reservations() (reservation.Etcd, error) {
	t := o.Kube.Etcd.StorageConfig.Transport
	config := clientv3.Config{Endpoints: t.ServerList, DialTimeout: 5 * time.Second}
	if t.CertFile != "" || t.TrustedCAFile != "" {
		certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return reservation.Etcd{}, fmt.Errorf("read the certificate towards etcd: %w", err)
		}
		authority, err := pool(t.TrustedCAFile)
		if err != nil {
			return reservation.Etcd{}, err
		}
		config.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: authority, MinVersion: tls.VersionTLS12}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return reservation.Etcd{}, fmt.Errorf("connect to etcd at %v: %w", t.ServerList, err)
	}
	return reservation.Etcd{Client: client, Key: reservationKey}, nil
}

func logReservationFailure(err error) {
	klog.ErrorS(err, "resourceVersions cannot be reserved ahead, will retry")
}
