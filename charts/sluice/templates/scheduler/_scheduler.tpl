{{/* A stock scheduler that calls the extender of its pod, only for pods that request Sluice's resource. */}}
{{- define "sluice.kubeSchedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: {{ include "sluice.schedulerLease" . }}
{{- if not (kindIs "invalid" .Values.scheduler.kubeScheduler.percentageOfNodesToScore) }}
percentageOfNodesToScore: {{ int64 .Values.scheduler.kubeScheduler.percentageOfNodesToScore }}
{{- end }}
{{- with .Values.scheduler.kubeScheduler.clientConnection }}
clientConnection:
  {{- toYaml . | nindent 2 }}
{{- end }}
profiles:
  - schedulerName: sluice-scheduler
extenders:
  - urlPrefix: http://127.0.0.1:9402
    filterVerb: filter
    prioritizeVerb: prioritize
    # DefaultPreemption chooses victims by the sums of a node. The extender corrects them GPU by GPU: without this verb a pod
    # could be evicted for one that then fits on no GPU.
    preemptVerb: preempt
    bindVerb: bind
    weight: 1
    nodeCacheCapable: true
    ignorable: false
    httpTimeout: {{ .Values.scheduler.extenderTimeout }}
    managedResources:
      - name: sluice.dev/gpu
        ignoredByScheduler: false
{{- end }}

{{/* A fixed name, independent of the release, like the name of the profile that the webhook writes into pods. */}}
{{- define "sluice.schedulerLease" -}}
sluice-scheduler
{{- end }}

{{- define "sluice.schedulerFlags" -}}
{{- $own := .Values.scheduler -}}
- {{ printf "--lease=%s/%s" .Release.Namespace (include "sluice.schedulerLease" .) | quote }}
{{- include "sluice.listenFlag" (dict "root" . "flag" "metrics-listen" "default" 9401) }}
{{- include "sluice.flag" (list "strategy" $own.strategy) }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
