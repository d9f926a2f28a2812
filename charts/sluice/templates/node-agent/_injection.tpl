{{/*
The container that gives the agent's own container the driver by NRI and CDI, on nodes without NVIDIA's container runtime. Kubelet
starts it first, and keeps it running, because it also has to be there when the agent's container is created again.
*/}}
{{- define "sluice.ownDriver" -}}
- name: own-driver
  image: {{ include "sluice.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  args:
    - node-agent
    - --own-driver
    # The port alone: the address is that of --http, which the process does not serve.
    - --health=9406
    {{- include "sluice.listenFlag" (dict "root" . "flag" "http" "default" 9400) | nindent 4 }}
  env:
    - name: NODE_NAME
      valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
    - name: POD_UID
      valueFrom: { fieldRef: { fieldPath: metadata.uid } }
    {{- include "sluice.environment" (dict "root" . "component" "node-agent") | nindent 4 }}
  ports:
    - { name: own-driver, containerPort: 9406 }
  # The agent's container is created after the plugin is registered.
  startupProbe:
    httpGet: { path: /readyz, port: own-driver }
    periodSeconds: 1
    failureThreshold: 3600
  resources:
    # Enough to answer within the runtime's 2 s on a busy node.
    requests: { cpu: 10m, memory: 16Mi }
  # The socket and the specifications belong to root.
  securityContext:
    runAsUser: 0
    runAsGroup: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
    seccompProfile: { type: RuntimeDefault }
    {{- if .Values.nodeAgent.seLinux.enabled }}
    seLinuxOptions: {{- include "sluice.seLinuxOptions" . | nindent 6 }}
    {{- end }}
  volumeMounts:
    {{- include "sluice.nriMounts" . | nindent 4 }}
{{- end }}

{{- define "sluice.nriMounts" -}}
- { name: nri, mountPath: /var/run/nri, readOnly: true }
- { name: cdi, mountPath: /etc/cdi, readOnly: true }
- { name: cdi-run, mountPath: /var/run/cdi, readOnly: true }
{{- end }}

{{/* Folders, because the runtime makes its socket anew at each start. */}}
{{- define "sluice.nriVolumes" -}}
- name: nri
  hostPath: { path: /var/run/nri, type: DirectoryOrCreate }
- name: cdi
  hostPath: { path: /etc/cdi, type: DirectoryOrCreate }
- name: cdi-run
  hostPath: { path: /var/run/cdi, type: DirectoryOrCreate }
{{- end }}
