package settle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// Only a deletion that is under way is waited for: neither a dry run, whose
// options came in the body, nor an object that has taken the place meanwhile.
func TestGoneWaitsForADeletion(t *testing.T) {
	const limit = 2 * time.Second
	deleting := metav1.Now()
	for name, c := range map[string]struct {
		uid      types.UID
		deletion *metav1.Time
		absent   bool
		waits    bool
	}{
		"under way":       {uid: "1", deletion: &deleting, waits: true},
		"a dry run":       {uid: "1"},
		"another object":  {uid: "2", deletion: &deleting},
		"gone, or absent": {absent: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			scheme := fake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			client := fake.NewSimpleMetadataClient(scheme)
			configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
			if !c.absent {
				object := &metav1.PartialObjectMetadata{
					TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", UID: c.uid, DeletionTimestamp: c.deletion},
				}
				if err := client.Tracker().Create(configMaps, object, "a"); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			New(client).Gone(ctx, configMaps, proxy.Ref{Namespace: "a", Name: "x", UID: "1"})
			if took := time.Since(start); (took >= limit) != c.waits {
				t.Errorf("%s: waited %s", name, took)
			}
		})
	}
}
