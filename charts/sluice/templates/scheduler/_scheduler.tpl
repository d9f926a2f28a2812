{{/* A stock scheduler that calls the extender of its pod, only for pods that request Sluice's resource. */}}
{{- define "sluice.kubeSchedulerConfiguration" -}}
{{- include "sluice.checkPlugins" . -}}
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
    {{- with .Values.scheduler.kubeScheduler.plugins }}
    plugins:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.scheduler.kubeScheduler.pluginConfig }}
    pluginConfig:
      {{- toYaml . | nindent 6 }}
    {{- end }}
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

{{/*
Refuses settings of plugins with which pods would be placed wrongly, and those that only kube-scheduler's start would show. The extender
is asked about the nodes that the sums of resources, the labels and the taints admit. It counts GPUs alone.
*/}}
{{- define "sluice.checkPlugins" -}}
{{- $own := .Values.scheduler.kubeScheduler -}}
{{- $needed := list "NodeResourcesFit" "NodeAffinity" "TaintToleration" -}}
{{- $mistakes := list -}}
{{- range $point := list "multiPoint" "preFilter" "filter" -}}
{{- $disabled := dig $point "disabled" list ($own.plugins | default dict) -}}
{{- $enabled := list -}}
{{- range dig $point "enabled" list ($own.plugins | default dict) }}{{ $enabled = append $enabled .name }}{{ end -}}
{{- range $disabled -}}
{{- $plugin := . -}}
{{- range $name := $needed -}}
{{- if and (has $plugin.name (list $name "*")) (not (has $name $enabled)) -}}
{{- $mistakes = append $mistakes (printf "plugins.%s.disabled has %q, expected %s to stay: pods would be sent to nodes that cannot take them" $point $plugin.name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $own.pluginConfig -}}
{{- if has .name $names -}}
{{- $mistakes = append $mistakes (printf "pluginConfig has %q twice, expected one entry for each plugin" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if eq .name "NodeResourcesFit" -}}
{{- range concat (.args.ignoredResources | default list) (.args.ignoredResourceGroups | default list) -}}
{{- if hasPrefix "sluice.dev" . -}}
{{- $mistakes = append $mistakes (printf "pluginConfig ignores %q, expected Sluice's resources to be counted: they limit what a node gets" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $mistakes }}{{ fail (printf "scheduler.kubeScheduler: %s" (join "; " .)) }}{{ end -}}
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
{{- if $own.scaleUpPods }}
- "--scale-up-pods"
{{- end }}
{{- include "sluice.claimsInFlag" . }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
